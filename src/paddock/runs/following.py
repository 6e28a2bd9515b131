"""Follows what a command in a box writes, whatever becomes of the connection, and leaves others their share of time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass

from paddock.errors import NotFound, PaddockError, SandboxNotFound
from paddock.fleet.fleet import Fleet
from paddock.model.sandbox import Sandbox
from paddock.sandbox.client import Ended, Output

SHARE = 0.25
"""Of the event loop's time that a flood of output may take, once it has taken `ALLOWANCE` seconds."""
ALLOWANCE, RESUMED = 1.0, 0.1
COST = 1 / (64 * 2**20)
"""Seconds that reading one byte from the box takes, about."""
SLICE = 16 * 2**10
"""Bytes that are handled without a pause."""
MUCH, SOMETIMES = 2**20, 0.5
"""Bytes and seconds after which it is looked how far behind we are."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
QUIET = 15.0
"""Seconds without output after which the connection is made anew."""
BEYOND = 10**17
TAIL = "EXECD-COMMANDS-TAIL-CURSOR"


@dataclass(frozen=True)
class Piece:
    """Something written, and the place in the output behind it."""

    stream: str
    data: bytes
    cursor: int
    missed: int = 0
    """Bytes before it that nobody has read and nobody will."""


class Following:
    """The output of one command from a cursor on.

    Of a flood only the first `enough` bytes and the last `keep` matter to anybody: what lies between is passed over
    when it comes more quickly than it can be read.
    """

    def __init__(
        self,
        fleet: Fleet,
        sandbox: Sandbox,
        command: str,
        cursor: int,
        *,
        enough: int,
        keep: int,
        doubt: Callable[[], None],
    ) -> None:
        self._fleet = fleet
        self._sandbox = sandbox
        self._command = command
        self._cursor = cursor
        self._passing_over = 0
        self._looked_behind, self._looked_at = 0, 0.0
        self._enough, self._keep = enough, keep
        self._doubt = doubt
        self._allowance = ALLOWANCE
        self._counted_at = asyncio.get_running_loop().time()

    async def pieces(self) -> AsyncGenerator[Piece | Ended, None]:
        """What is written, and at last the end. Raises `NotFound` when the box knows no such command."""
        pause = FIRST_PAUSE
        while True:
            try:
                async with aclosing(self._connected()) as connected:
                    async for each in connected:
                        pause = FIRST_PAUSE
                        yield each
                        if isinstance(each, Ended):
                            return
                continue
            except SandboxNotFound:
                self._doubt()
            except NotFound:
                raise
            except (PaddockError, RuntimeError):  # aiohttp's word for a client that the fleet has closed.
                self._doubt()
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _connected(self) -> AsyncGenerator[Piece | Ended, None]:
        beginning, self._passing_over = self._cursor + self._passing_over, 0
        inside = await self._fleet.inside(self._sandbox.tenant, self._sandbox.id)
        async with aclosing(inside.follow(self._command, beginning, whole=True)) as following:
            while True:
                try:
                    async with asyncio.timeout(QUIET):
                        each = await anext(following)
                except TimeoutError:
                    return  # Perhaps nobody is at the other end any more; asking again costs little.
                if isinstance(each, Ended):
                    yield each
                    return
                for piece in self._slices(each):
                    began = asyncio.get_running_loop().time()
                    yield piece
                    self._count(asyncio.get_running_loop().time() - began + len(piece.data) * COST)
                    if self._allowance < 0:
                        await asyncio.sleep((RESUMED - self._allowance) / SHARE)
                    self._passing_over = await self._excess()
                    if self._passing_over:
                        return

    def _slices(self, output: Output) -> Iterator[Piece]:
        # What a box says of its cursors is only data: it can leave out some of its own output that way, and no more.
        missed = max(0, (output.cursor or 0) - len(output.data) - self._cursor)
        data = output.data
        while data:
            cut = _cut(data)
            self._cursor += missed + cut
            yield Piece(output.stream, data[:cut], self._cursor, missed)
            data, missed = data[cut:], 0

    def _count(self, spent: float) -> None:
        now = asyncio.get_running_loop().time()
        self._allowance = min(ALLOWANCE, self._allowance + (now - self._counted_at) * SHARE) - spent
        self._counted_at = now

    async def _excess(self) -> int:
        """How much more there is to read than matters to anybody; looked at from time to time."""
        now = asyncio.get_running_loop().time()
        if self._cursor < max(self._enough, self._looked_behind + MUCH) or now - self._looked_at < SOMETIMES:
            return 0
        self._looked_behind, self._looked_at = self._cursor, now
        inside = await self._fleet.inside(self._sandbox.tenant, self._sandbox.id)
        try:
            async with asyncio.timeout(LONGEST_PAUSE):
                # There is nothing from there on, but the answer says where the end is.
                async with inside.request(
                    "GET", f"/command/{self._command}/logs", params={"cursor": str(BEYOND)}
                ) as answer:
                    end = answer.headers.get(TAIL, "")
        except (PaddockError, TimeoutError):
            return 0
        behind = int(end) - self._cursor if end.isdecimal() and len(end) < 20 else 0
        return max(0, behind - self._keep)


def _cut(data: bytes) -> int:
    """Where to cut off a slice: behind a line if there is one, and not within a character."""
    if len(data) <= SLICE:
        return len(data)
    if (newline := data.rfind(b"\n", 0, SLICE)) >= 0:
        return newline + 1
    cut = SLICE
    while cut > SLICE - 4 and data[cut] & 0xC0 == 0x80:
        cut -= 1
    return cut
