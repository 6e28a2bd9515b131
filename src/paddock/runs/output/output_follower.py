"""Follow the output of a sandbox command across reconnections, with a limited share of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass

from paddock.errors import NotFound, PaddockError, SandboxNotFound
from paddock.fleet.fleet import Fleet
from paddock.model.sandbox import Sandbox
from paddock.sandbox.daemon.client import CommandEnded, CommandOutputChunk

EVENT_LOOP_SHARE = 0.25
"""Share of the event loop's time for a flood of output, after the first `ALLOWANCE` seconds."""
ALLOWANCE, RESUME_ALLOWANCE = 1.0, 0.1
SECONDS_PER_BYTE = 1 / (64 * 2**20)
"""Estimated seconds to read one byte from the sandbox."""
SLICE_BYTES = 16 * 2**10
"""Bytes processed without yielding."""
CHECK_BYTES, CHECK_SECONDS = 2**20, 0.5
"""Bytes and seconds between checks of the backlog."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
RECONNECT_SECONDS = 15.0
"""Seconds without output before a reconnect."""
CURSOR_PAST_END = 10**17
TAIL_CURSOR_HEADER = "EXECD-COMMANDS-TAIL-CURSOR"


@dataclass(frozen=True)
class OutputPiece:
    """Piece of output and the position behind it."""

    stream: str
    data: bytes
    cursor: int
    missed: int = 0
    """Skipped bytes before this piece."""


class OutputFollower:
    """Follower of one command's output from a cursor.

    Of a flood, only the first `enough` bytes and the last `keep` bytes matter: the middle is skipped
    if output arrives faster than it can be read.
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
        check_health: Callable[[], None],
    ) -> None:
        self._fleet = fleet
        self._sandbox = sandbox
        self._command = command
        self._cursor = cursor
        self._bytes_to_skip = 0
        self._last_checked_cursor, self._last_checked_at = 0, 0.0
        self._enough, self._keep = enough, keep
        self._check_health = check_health
        self._allowance = ALLOWANCE
        self._counted_at = asyncio.get_running_loop().time()

    async def pieces(self) -> AsyncGenerator[OutputPiece | CommandEnded, None]:
        """Yield pieces of output and finally the end. Raises `NotFound` if the sandbox has no such command."""
        pause = FIRST_PAUSE
        while True:
            try:
                async with aclosing(self._follow_connection()) as connected:
                    async for each in connected:
                        pause = FIRST_PAUSE
                        yield each
                        if isinstance(each, CommandEnded):
                            return
                continue
            except SandboxNotFound:
                self._check_health()
            except NotFound:
                raise
            except (PaddockError, RuntimeError):  # aiohttp's error for a client closed by the fleet.
                self._check_health()
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _follow_connection(self) -> AsyncGenerator[OutputPiece | CommandEnded, None]:
        beginning, self._bytes_to_skip = self._cursor + self._bytes_to_skip, 0
        daemon = await self._fleet.running_client(self._sandbox.tenant, self._sandbox.id)
        async with aclosing(daemon.follow(self._command, beginning, whole=True)) as following:
            while True:
                try:
                    async with asyncio.timeout(RECONNECT_SECONDS):
                        each = await anext(following)
                except TimeoutError:
                    return  # The peer may be gone; a reconnect is cheap.
                if isinstance(each, CommandEnded):
                    yield each
                    return
                for piece in self._slice_chunk(each):
                    began = asyncio.get_running_loop().time()
                    yield piece
                    self._limit_time_share(
                        asyncio.get_running_loop().time() - began + len(piece.data) * SECONDS_PER_BYTE
                    )
                    if self._allowance < 0:
                        await asyncio.sleep((RESUME_ALLOWANCE - self._allowance) / EVENT_LOOP_SHARE)
                    self._bytes_to_skip = await self._count_skippable_bytes()
                    if self._bytes_to_skip:
                        return

    def _slice_chunk(self, output: CommandOutputChunk) -> Iterator[OutputPiece]:
        # Cursors are untrusted: a wrong one can only hide the sandbox's own output.
        missed = max(0, (output.cursor or 0) - len(output.data) - self._cursor)
        data = output.data
        while data:
            cut = _cut_position(data)
            self._cursor += missed + cut
            yield OutputPiece(output.stream, data[:cut], self._cursor, missed)
            data, missed = data[cut:], 0

    def _limit_time_share(self, spent: float) -> None:
        now = asyncio.get_running_loop().time()
        self._allowance = min(ALLOWANCE, self._allowance + (now - self._counted_at) * EVENT_LOOP_SHARE) - spent
        self._counted_at = now

    async def _count_skippable_bytes(self) -> int:
        """Return how many unread bytes can be skipped; checked from time to time."""
        now = asyncio.get_running_loop().time()
        if (
            self._cursor < max(self._enough, self._last_checked_cursor + CHECK_BYTES)
            or now - self._last_checked_at < CHECK_SECONDS
        ):
            return 0
        self._last_checked_cursor, self._last_checked_at = self._cursor, now
        daemon = await self._fleet.running_client(self._sandbox.tenant, self._sandbox.id)
        try:
            async with asyncio.timeout(LONGEST_PAUSE):
                # The answer is empty, but its header has the end position.
                async with daemon.request(
                    "GET", f"/command/{self._command}/logs", params={"cursor": str(CURSOR_PAST_END)}
                ) as answer:
                    end = answer.headers.get(TAIL_CURSOR_HEADER, "")
        except (PaddockError, TimeoutError):
            return 0
        behind = int(end) - self._cursor if end.isdecimal() and len(end) < 20 else 0
        return max(0, behind - self._keep)


def _cut_position(data: bytes) -> int:
    """Return where to cut a slice: after a line if possible, never within a character."""
    if len(data) <= SLICE_BYTES:
        return len(data)
    if (newline := data.rfind(b"\n", 0, SLICE_BYTES)) >= 0:
        return newline + 1
    cut = SLICE_BYTES
    while cut > SLICE_BYTES - 4 and data[cut] & 0xC0 == 0x80:
        cut -= 1
    return cut
