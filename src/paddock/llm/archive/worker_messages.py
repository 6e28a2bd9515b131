"""Messages between the server and the archive's writer process."""

from __future__ import annotations

import asyncio
from typing import TypeAlias

import msgspec

from paddock.llm.exchange import Exchange

_LENGTH = 8


class WorkerMessage(msgspec.Struct, tag=True):
    pass


class StartWriter(WorkerMessage):
    """The first command to a writer process."""

    database: str
    settings: bytes
    """The section `llm.archive` as JSON."""
    secrets: list[str]


class WriteExchanges(WorkerMessage):
    """Write exchanges."""

    number: int
    exchanges: list[Exchange]
    now: bool
    """Whether a caller waits for this one exchange and needs to know if it fails."""


class FlushWrites(WorkerMessage):
    number: int


class IndexAll(WorkerMessage):
    number: int


class DeleteExchanges(WorkerMessage):
    number: int
    numbers: list[int]


class CommandDone(WorkerMessage):
    """The command with this number has been executed."""

    number: int
    error: str | None = None
    result: int = 0


class WriterStatus(WorkerMessage):
    """State of the writer process."""

    lost: int
    trouble: str | None


WriterCommand: TypeAlias = StartWriter | WriteExchanges | FlushWrites | IndexAll | DeleteExchanges
WriterReport: TypeAlias = CommandDone | WriterStatus
_encode = msgspec.msgpack.Encoder().encode
_command_decoder: msgspec.msgpack.Decoder[WriterCommand] = msgspec.msgpack.Decoder(WriterCommand)
_report_decoder: msgspec.msgpack.Decoder[WriterReport] = msgspec.msgpack.Decoder(WriterReport)


def encode_message(message: WorkerMessage) -> bytes:
    body = _encode(message)
    return len(body).to_bytes(_LENGTH, "big") + body


async def read_command(reader: asyncio.StreamReader) -> WriterCommand:
    """Read the next command. Raises `IncompleteReadError` when the server is gone."""
    return _command_decoder.decode(await _read_body(reader))


async def read_report(reader: asyncio.StreamReader) -> WriterReport:
    """Read the next report. Raises `IncompleteReadError` when the writer process is gone."""
    return _report_decoder.decode(await _read_body(reader))


async def _read_body(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(_LENGTH), "big"))
