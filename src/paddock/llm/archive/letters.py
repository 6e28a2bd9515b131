"""What the server and its archivist, who sits in a process of its own, say to each other."""

from __future__ import annotations

import asyncio
from typing import TypeAlias

import msgspec

from paddock.llm.exchange import Exchange

_LENGTH = 8


class Letter(msgspec.Struct, tag=True):
    pass


class Begin(Letter):
    """The first thing the archivist is told."""

    database: str
    settings: bytes
    """The section `llm.archive` as JSON."""
    secrets: list[str]


class Keep(Letter):
    """Exchanges to be written."""

    number: int
    exchanges: list[Exchange]
    now: bool
    """Whether somebody waits for just this one, and must be told if it cannot be written."""


class Flush(Letter):
    number: int


class CatchUp(Letter):
    number: int


class Remove(Letter):
    number: int
    numbers: list[int]


class Done(Letter):
    """A letter with this number has been seen to."""

    number: int
    error: str | None = None
    result: int = 0


class Status(Letter):
    """How the archivist is doing."""

    lost: int
    trouble: str | None


ToArchivist: TypeAlias = Begin | Keep | Flush | CatchUp | Remove
FromArchivist: TypeAlias = Done | Status
_encode = msgspec.msgpack.Encoder().encode
_to_archivist: msgspec.msgpack.Decoder[ToArchivist] = msgspec.msgpack.Decoder(ToArchivist)
_from_archivist: msgspec.msgpack.Decoder[FromArchivist] = msgspec.msgpack.Decoder(FromArchivist)


def pack(letter: Letter) -> bytes:
    body = _encode(letter)
    return len(body).to_bytes(_LENGTH, "big") + body


async def read_order(reader: asyncio.StreamReader) -> ToArchivist:
    """Raises `IncompleteReadError` when the server is gone."""
    return _to_archivist.decode(await _body(reader))


async def read_answer(reader: asyncio.StreamReader) -> FromArchivist:
    """Raises `IncompleteReadError` when the archivist is gone."""
    return _from_archivist.decode(await _body(reader))


async def _body(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(_LENGTH), "big"))
