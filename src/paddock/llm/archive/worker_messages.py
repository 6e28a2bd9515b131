"""Messages between the server and the archive's writer process."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TypeAlias

import msgspec

from paddock.llm.exchange import Exchange

_LENGTH = 8
_LARGE_REQUEST = 2**20


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
    request_size: int = 0
    """Size of the first exchange's request if it follows the message, as a large one does: encoding copies it."""


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


def encode_write(command: WriteExchanges) -> tuple[bytes, ...]:
    """Encode a command to write exchanges. The result has a second part if there is one exchange and it is large."""
    first = command.exchanges[0]
    if len(command.exchanges) > 1 or len(first.request) < _LARGE_REQUEST:
        return (encode_message(command),)
    bare = WriteExchanges(command.number, [replace(first, request=b"")], command.now, len(first.request))
    return encode_message(bare), first.request


async def read_command(reader: asyncio.StreamReader) -> WriterCommand:
    """Read the next command. Raises `IncompleteReadError` when the server is gone."""
    command = _command_decoder.decode(await _read_body(reader))
    if isinstance(command, WriteExchanges) and command.request_size:
        command.exchanges[0].request = await reader.readexactly(command.request_size)
    return command


async def read_report(reader: asyncio.StreamReader) -> WriterReport:
    """Read the next report. Raises `IncompleteReadError` when the writer process is gone."""
    return _report_decoder.decode(await _read_body(reader))


async def _read_body(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(_LENGTH), "big"))
