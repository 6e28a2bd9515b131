"""Standard input and output of an agent program in a sandbox, which outlive the server.

The program is a background command of the sandbox's daemon, which stores its output, so that it can be read from any
cursor. The program reads from a named pipe that it keeps open itself; each message is written to the pipe by a command
that completes even if the server stops, and does nothing if the message was sent before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from paddock.agents.json_schema_validation import is_nested_at_most
from paddock.errors import NotFound, PaddockError, SandboxError
from paddock.sandbox.daemon.client import CommandEnded, CommandOutputChunk, DaemonClient, SandboxCommand

SEND_TIMEOUT = 60.0
"""Seconds that a program has to read a message."""
MAX_LINE_BYTES = 64 * 2**20
STDERR_TAIL_BYTES = 4000
"""Bytes of standard error that are remembered."""
_PREPARE = 'rm -rf "$0" && mkdir -m 700 "$0" "$0/sent" && mkfifo -m 600 "$0/in"'
_START = 'exec "$@" <>"$0/in"'
# An existing mark means that the message was sent.
_SEND = """\
mkdir "$1/sent/$2" 2>/dev/null || { test -d "$1/sent/$2" && exit 0; exit 1; }
exec cat >"$1/in"
"""


class AgentProgramError(PaddockError):
    """The agent program failed."""

    code = "AGENT_ERROR"


class AgentProgramGone(AgentProgramError):
    """The agent program ended."""

    code = "AGENT_GONE"


@dataclass(frozen=True)
class AgentProgramMessage:
    """One message of the program, and the cursor after it."""

    message: Mapping[str, Any]
    cursor: int


class AgentProcess:
    """A process of an agent program in a sandbox."""

    def __init__(self, daemon: DaemonClient, directory: str, name: str) -> None:
        """`name` is the id of the background command; `directory` belongs to this process only."""
        self._daemon = daemon
        self._directory = directory
        self.name = name
        self.stderr_tail = b""

    async def start(self, command_words: Sequence[str], env: Mapping[str, str], cwd: str) -> None:
        """Start the program; called once per name."""
        prepared = await self._daemon.run(
            SandboxCommand(["/bin/sh", "-c", _PREPARE, self._directory], timeout=SEND_TIMEOUT)
        )
        if prepared.exit_code != 0:
            raise AgentProgramError(
                f"the agent program cannot be started: {prepared.stderr.decode(errors='replace')[:500]}"
            )
        command = SandboxCommand(["/bin/sh", "-c", _START, self._directory, *command_words], cwd=cwd, env=env)
        await self._daemon.start(command, id=self.name)

    async def is_alive(self) -> bool:
        try:
            return bool((await self._daemon.status(self.name)).get("running"))
        except NotFound:
            return False

    async def send_message(self, mark: str, message: Mapping[str, Any]) -> None:
        """Send a message, once for each mark. Raises `AgentProgramGone`."""
        await self.send_line(mark, encode_rpc_message(message))

    async def send_line(self, mark: str, line: str) -> None:
        name = hashlib.sha256(mark.encode()).hexdigest()[:32]
        command_words = ["/bin/sh", "-c", _SEND, "sh", self._directory, name]
        send_command = await self._daemon.start(SandboxCommand(command_words, stdin=line, timeout=SEND_TIMEOUT))
        async with aclosing(self._daemon.follow(send_command)) as events:
            async for event in events:
                if isinstance(event, CommandEnded) and event.exit_code != 0:
                    raise AgentProgramGone(f"the agent program does not read its input{self.stderr_note}")

    async def read_messages(self, cursor: int) -> AsyncGenerator[AgentProgramMessage, None]:
        """Yield messages from a cursor on. Raises `AgentProgramGone` when the program ends."""
        buffer = bytearray()
        async with aclosing(self._daemon.follow(self.name, cursor, whole=True)) as events:
            async for event in events:
                if isinstance(event, CommandEnded):
                    raise AgentProgramGone(
                        f"the agent program ended with exit code {event.exit_code}{self.stderr_note}"
                    )
                if event.stream == "stderr":
                    self.stderr_tail = (self.stderr_tail + event.data)[-STDERR_TAIL_BYTES:]
                    continue
                for line in _split_messages(buffer, event):
                    yield line
                if len(buffer) > MAX_LINE_BYTES:
                    raise AgentProgramError("the agent program writes an endless line")
        raise SandboxError("the sandbox ended before the agent program did")

    async def kill(self) -> None:
        """Kill the process and its children."""
        try:
            await self._daemon.interrupt(self.name)
        except (NotFound, SandboxError):
            return

    @property
    def stderr_note(self) -> str:
        """Return the last standard error output, as a suffix for error messages."""
        text = self.stderr_tail.decode(errors="replace").strip()
        return f": {text[-1000:]}" if text else ""


def encode_rpc_message(message: Mapping[str, Any]) -> str:
    return json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=True, separators=(",", ":")) + "\n"


def _split_messages(buffer: bytearray, event: CommandOutputChunk) -> list[AgentProgramMessage]:
    """Return the messages completed by a piece of output; lines that are not JSON objects are ignored."""
    searched = len(buffer)
    buffer += event.data
    start = (event.cursor or 0) - len(buffer)
    messages: list[AgentProgramMessage] = []
    consumed = 0
    while (end := buffer.find(b"\n", max(consumed, searched))) >= 0:
        message = _parse_message(buffer[consumed:end])
        consumed = end + 1
        if isinstance(message, dict):
            messages.append(AgentProgramMessage(message, start + consumed))
    del buffer[:consumed]
    return messages


def _parse_message(line: bytes | bytearray) -> Any:
    """Parse a message; replace lone surrogates and drop values that are nested too deeply."""
    try:
        message = json.loads(line, parse_constant=lambda _: None)
        if b"\\u" in line:
            message = json.loads(json.dumps(message, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict):
        return None
    return {name: value for name, value in message.items() if is_nested_at_most(value)}
