"""Bytes on their way from one box to another, whatever the boxes do."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from paddock.errors import BoxGone, BoxTimeout, TooLarge
from paddock.fleet.moving import Passing

pytestmark = pytest.mark.anyio


def passing(limit: int = 1000, stall: float = 5, longest: float = 5) -> Passing:
    return Passing(limit, lambda count, total: None, stall, longest)


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


async def test_what_passes_is_counted_and_digested() -> None:
    way = passing()
    await way.carry(stream(b"ab", b"c"), read_all)
    assert (way.size, way.digest()) == (3, hashlib.sha256(b"abc").hexdigest())


async def test_a_destination_that_lies_about_having_read_all_is_found_out() -> None:
    closed: list[bool] = []

    async def lie(pieces: AsyncIterator[bytes]) -> None:
        await anext(pieces)

    with pytest.raises(BoxGone, match="has not read it"):
        await passing().carry(stream(b"a", b"b", b"c", b"d", b"e", closed=closed), lie)
    assert closed == [True], "the source is let go of"


async def test_a_source_that_breaks_off_is_to_blame_and_not_the_destination() -> None:
    async def breaking() -> AsyncGenerator[bytes, None]:
        yield b"a"
        raise BoxGone("the source broke off")

    async def take(pieces: AsyncIterator[bytes]) -> None:
        try:
            await read_all(pieces)
        except BoxGone:
            raise BoxGone("the destination does not answer") from None

    with pytest.raises(BoxGone, match="source broke off"):
        await passing().carry(breaking(), take)


async def test_no_more_than_the_limit_is_handed_on() -> None:
    handed = bytearray()

    async def take(pieces: AsyncIterator[bytes]) -> None:
        async for piece in pieces:
            handed.extend(piece)

    with pytest.raises(TooLarge):
        await passing(limit=5).carry(stream(b"abc", b"def", b"ghi"), take)
    assert bytes(handed) == b"abc"


async def test_a_source_that_sends_nothing_is_given_up() -> None:
    async def silent() -> AsyncGenerator[bytes, None]:
        await asyncio.sleep(60)
        yield b""

    with pytest.raises(BoxTimeout):
        await passing(stall=0.05).carry(silent(), read_all)


async def test_a_source_that_trickles_is_given_up() -> None:
    async def trickling() -> AsyncGenerator[bytes, None]:
        while True:
            await asyncio.sleep(0.01)
            yield b"x"

    with pytest.raises(BoxTimeout):
        await passing(limit=10**9, longest=0.1).carry(trickling(), read_all)
