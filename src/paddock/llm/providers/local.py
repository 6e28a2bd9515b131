"""Answers that Paddock gives by itself, told as if they came over a network: with pauses, or broken off."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from paddock.llm.providers.base import Answered
from paddock.llm.wire.base import Broken, Headers, TimedOut, Timeouts

LARGEST = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Beat:
    """Some bytes of an answer, after a pause; or its early end."""

    data: bytes = b""
    wait: float = 0.0
    breaks: bool = False


class LocalAnswered(Answered):
    """Tells an answer in beats. Pauses longer than the provider's limits are the errors they would be elsewhere."""

    def __init__(self, status: int, headers: Headers, beats: Iterable[Beat], timeouts: Timeouts | None = None) -> None:
        self.status = status
        self.headers = headers
        self._beats = iter(beats)
        self._timeouts = timeouts or Timeouts()

    async def read(self) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while piece := await self.piece():
            pieces.append(piece)
            size += len(piece)
            if size > LARGEST:
                raise Broken(f"the answer is longer than {LARGEST >> 20} MiB")
        return b"".join(pieces)

    async def piece(self) -> bytes:
        waited = 0.0
        for beat in self._beats:
            if beat.wait:
                await pause(beat.wait, self._timeouts.stall - waited, "the answer paused for too long")
                waited += beat.wait
            if beat.breaks:
                self.close()
                raise Broken("the connection ended before the answer did")
            if beat.data:
                return beat.data
        return b""

    def close(self) -> None:
        self._beats = iter(())


async def pause(seconds: float, limit: float, problem: str) -> None:
    """Wait, but no longer than somebody who waits for an upstream would. Raises `TimedOut`."""
    if seconds > limit:
        await asyncio.sleep(max(0.0, limit))
        raise TimedOut(problem)
    await asyncio.sleep(seconds)
