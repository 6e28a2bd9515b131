"""The way to a program in a box: its standard input and output, which outlive the server.

The program is a background command of the box's daemon, which keeps what it writes, so that it can be read on from any
place. It reads from a named pipe that it holds open itself; each message is put into it by a command of its own, which
comes to its end whatever becomes of the server, and does nothing if the message was sent before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from paddock.agents.schemas import shallow
from paddock.errors import BoxError, NotFound, PaddockError
from paddock.sandbox.client import Command, Ended, Inside, Output

SENT_WITHIN = 60.0
"""Seconds within which a program reads what it is sent."""
LONGEST_LINE = 64 * 2**20
REMEMBERED = 4000
"""Bytes of the last that it wrote on its standard error."""
_PREPARE = 'rm -rf "$0" && mkdir -m 700 "$0" "$0/sent" && mkfifo -m 600 "$0/in"'
_START = 'exec "$@" <>"$0/in"'
# A mark that is there already says that the message was sent.
_SEND = """\
mkdir "$1/sent/$2" 2>/dev/null || { test -d "$1/sent/$2" && exit 0; exit 1; }
exec cat >"$1/in"
"""


class ProgramError(PaddockError):
    """The agent program has failed."""

    code = "AGENT_ERROR"


class ProgramGone(ProgramError):
    """The agent program has ended."""

    code = "AGENT_GONE"


@dataclass(frozen=True)
class Line:
    """One message of the program, and where the next begins."""

    message: Mapping[str, Any]
    cursor: int


class Wire:
    """One process in a box."""

    def __init__(self, inside: Inside, directory: str, name: str) -> None:
        """`name` is the id of its command; what belongs to it lies in `directory`, which only it uses."""
        self._inside = inside
        self._directory = directory
        self.name = name
        self.complaints = b""

    async def start(self, words: Sequence[str], env: Mapping[str, str], cwd: str) -> None:
        """Start the program, which is asked for once in the life of a name."""
        prepared = await self._inside.run(Command(["/bin/sh", "-c", _PREPARE, self._directory], timeout=SENT_WITHIN))
        if prepared.exit_code != 0:
            raise ProgramError(f"the agent program cannot be started: {prepared.stderr.decode(errors='replace')[:500]}")
        command = Command(["/bin/sh", "-c", _START, self._directory, *words], cwd=cwd, env=env)
        await self._inside.start(command, id=self.name)

    async def alive(self) -> bool:
        try:
            return bool((await self._inside.status(self.name)).get("running"))
        except NotFound:
            return False

    async def send(self, mark: str, message: Mapping[str, Any]) -> None:
        """Send a message, once for each mark. Raises `ProgramGone`."""
        await self.send_line(mark, encode(message))

    async def send_line(self, mark: str, line: str) -> None:
        name = hashlib.sha256(mark.encode()).hexdigest()[:32]
        words = ["/bin/sh", "-c", _SEND, "sh", self._directory, name]
        sending = await self._inside.start(Command(words, stdin=line, timeout=SENT_WITHIN))
        async with aclosing(self._inside.follow(sending)) as events:
            async for event in events:
                if isinstance(event, Ended) and event.exit_code != 0:
                    raise ProgramGone(f"the agent program does not read what it is sent{self.said}")

    async def read(self, cursor: int) -> AsyncGenerator[Line, None]:
        """What it writes, from a place on. Raises `ProgramGone` at its end."""
        rest = bytearray()
        async with aclosing(self._inside.follow(self.name, cursor, whole=True)) as events:
            async for event in events:
                if isinstance(event, Ended):
                    raise ProgramGone(f"the agent program ended with exit code {event.exit_code}{self.said}")
                if event.stream == "stderr":
                    self.complaints = (self.complaints + event.data)[-REMEMBERED:]
                    continue
                for line in _lines(rest, event):
                    yield line
                if len(rest) > LONGEST_LINE:
                    raise ProgramError("the agent program writes an endless line")
        raise BoxError("the box ended before the agent program did")

    async def end(self) -> None:
        """End the process and all that it has started."""
        try:
            await self._inside.interrupt(self.name)
        except (NotFound, BoxError):
            return

    @property
    def said(self) -> str:
        """What it complained about last, to be put after a message."""
        said = self.complaints.decode(errors="replace").strip()
        return f": {said[-1000:]}" if said else ""


def encode(message: Mapping[str, Any]) -> str:
    return json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=True, separators=(",", ":")) + "\n"


def _lines(rest: bytearray, event: Output) -> list[Line]:
    """The messages that end in a piece of output. What is no JSON object was not meant for us."""
    seen = len(rest)
    rest += event.data
    start = (event.cursor or 0) - len(rest)
    found: list[Line] = []
    done = 0
    while (end := rest.find(b"\n", max(done, seen))) >= 0:
        message = _read(rest[done:end])
        done = end + 1
        if isinstance(message, dict):
            found.append(Line(message, start + done))
    del rest[:done]
    return found


def _read(line: bytes | bytearray) -> Any:
    """What a program says, in a way that all can keep: without halves of characters, and nothing too deep to follow."""
    try:
        message = json.loads(line, parse_constant=lambda _: None)
        if b"\\u" in line:
            message = json.loads(json.dumps(message, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict):
        return None
    return {name: value for name, value in message.items() if shallow(value)}
