"""Transfers between sandboxes: limits, timeouts and failures of either side."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from paddock.errors import SandboxGone, SandboxTimeout, TooLarge
from paddock.fleet.file_mover import FileTransfer

pytestmark = pytest.mark.anyio


def make_transfer(limit: int = 1000, stall: float = 5, longest: float = 5) -> FileTransfer:
    return FileTransfer(limit, lambda count, total: None, stall, longest)


async def stream(*pieces: bytes, closed: list[bool] | None = None) -> AsyncGenerator[bytes, None]:
    try:
        for piece in pieces:
            yield piece
    finally:
        if closed is not None:
            closed.append(True)


async def read_all(pieces: AsyncIterator[bytes]) -> None:
    async for _ in pieces:
        pass


async def test_transferred_bytes_are_counted_and_hashed() -> None:
    transfer = make_transfer()
    await transfer.copy_stream(stream(b"ab", b"c"), read_all)
    assert (transfer.size, transfer.digest()) == (3, hashlib.sha256(b"abc").hexdigest())


async def test_move_fails_if_destination_did_not_read_all_data() -> None:
    closed: list[bool] = []

    async def lie(pieces: AsyncIterator[bytes]) -> None:
        await anext(pieces)

    with pytest.raises(SandboxGone, match="without reading all data"):
        await make_transfer().copy_stream(stream(b"a", b"b", b"c", b"d", b"e", closed=closed), lie)
    assert closed == [True], "the source is let go of"


async def test_source_error_takes_precedence_over_destination_error() -> None:
    async def breaking() -> AsyncGenerator[bytes, None]:
        yield b"a"
        raise SandboxGone("the source broke off")

    async def take(pieces: AsyncIterator[bytes]) -> None:
        try:
            await read_all(pieces)
        except SandboxGone:
            raise SandboxGone("the destination does not answer") from None

    with pytest.raises(SandboxGone, match="source broke off"):
        await make_transfer().copy_stream(breaking(), take)


async def test_move_stops_at_the_size_limit() -> None:
    received = bytearray()

    async def take(pieces: AsyncIterator[bytes]) -> None:
        async for piece in pieces:
            received.extend(piece)

    with pytest.raises(TooLarge):
        await make_transfer(limit=5).copy_stream(stream(b"abc", b"def", b"ghi"), take)
    assert bytes(received) == b"abc"


async def test_silent_source_times_out() -> None:
    async def silent() -> AsyncGenerator[bytes, None]:
        await asyncio.sleep(60)
        yield b""

    with pytest.raises(SandboxTimeout):
        await make_transfer(stall=0.05).copy_stream(silent(), read_all)


async def test_trickling_source_times_out() -> None:
    async def trickling() -> AsyncGenerator[bytes, None]:
        while True:
            await asyncio.sleep(0.01)
            yield b"x"

    with pytest.raises(SandboxTimeout):
        await make_transfer(limit=10**9, longest=0.1).copy_stream(trickling(), read_all)
