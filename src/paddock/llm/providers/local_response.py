"""Locally produced responses that behave as if they came over a network: with delays, or cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from paddock.llm.wire.base import Headers, UpstreamBroken, UpstreamResponse, UpstreamTimedOut, UpstreamTimeouts

MAX_BYTES = 256 * 2**20
CHUNKS_PER_STEP = 64
"""Chunks after which other requests go first: making chunks never waits, unlike reading them from a network."""


@dataclass(frozen=True, slots=True)
class SimulatedResponseChunk:
    """Some bytes of a response after a delay, or its early end."""

    data: bytes = b""
    delay: float = 0.0
    breaks: bool = False


class SimulatedUpstreamResponse(UpstreamResponse):
    """Returns a response chunk by chunk. Delays beyond the provider's limits raise the errors a network would cause."""

    def __init__(
        self,
        status: int,
        headers: Headers,
        chunks: Iterable[SimulatedResponseChunk],
        timeouts: UpstreamTimeouts | None = None,
    ) -> None:
        self.status = status
        self.headers = headers
        self._chunks = iter(chunks)
        self._timeouts = timeouts or UpstreamTimeouts()
        self._read_chunks = 0

    async def read(self) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while piece := await self.read_piece():
            pieces.append(piece)
            size += len(piece)
            if size > MAX_BYTES:
                raise UpstreamBroken(f"the answer is longer than {MAX_BYTES >> 20} MiB")
        return b"".join(pieces)

    async def read_piece(self) -> bytes:
        waited = 0.0
        for chunk in self._chunks:
            self._read_chunks += 1
            if self._read_chunks % CHUNKS_PER_STEP == 0:
                await asyncio.sleep(0)
            if chunk.delay:
                await sleep_within_limit(chunk.delay, self._timeouts.stall - waited, "the answer paused for too long")
                waited += chunk.delay
            if chunk.breaks:
                self.close()
                raise UpstreamBroken("the connection ended before the answer did")
            if chunk.data:
                return chunk.data
        return b""

    def close(self) -> None:
        self._chunks = iter(())


async def sleep_within_limit(seconds: float, limit: float, problem: str) -> None:
    """Sleep, but raise `UpstreamTimedOut` when a limit of the provider is exceeded."""
    if seconds > limit:
        await asyncio.sleep(max(0.0, limit))
        raise UpstreamTimedOut(problem)
    await asyncio.sleep(seconds)
