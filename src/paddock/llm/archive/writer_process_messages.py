"""Messages between the server and the archive's writer process."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TypeAlias

import msgspec

from paddock.llm.exchange import Exchange

_LENGTH = 8
_LARGE_REQUEST = 2**20


class WriterProcessMessage(msgspec.Struct, tag=True):
    pass


class StartWriterCommand(WriterProcessMessage):
    """The first command to a writer process."""

    database: str
    settings: bytes
    """The section `llm.archive` as JSON."""
    secrets: list[str]


class WriteExchangesCommand(WriterProcessMessage):
    """Write exchanges."""

    number: int
    exchanges: list[Exchange]
    now: bool
    """Whether a caller waits for this one exchange and needs to know if it fails."""
    request_size: int = 0
    """Size of the first exchange's request if it follows the message, as a large one does: encoding copies it."""


class FlushWritesCommand(WriterProcessMessage):
    number: int


class IndexAllCommand(WriterProcessMessage):
    number: int


class DeleteExchangesCommand(WriterProcessMessage):
    number: int
    numbers: list[int]


class CommandDoneReport(WriterProcessMessage):
    """The command with this number has been executed."""

    number: int
    error: str | None = None
    result: int = 0


class WriterStatusReport(WriterProcessMessage):
    """State of the writer process."""

    lost: int
    trouble: str | None


WriterCommand: TypeAlias = (
    StartWriterCommand | WriteExchangesCommand | FlushWritesCommand | IndexAllCommand | DeleteExchangesCommand
)
WriterReport: TypeAlias = CommandDoneReport | WriterStatusReport
_encode = msgspec.msgpack.Encoder().encode
_command_decoder: msgspec.msgpack.Decoder[WriterCommand] = msgspec.msgpack.Decoder(WriterCommand)
_report_decoder: msgspec.msgpack.Decoder[WriterReport] = msgspec.msgpack.Decoder(WriterReport)


def encode_writer_message(message: WriterProcessMessage) -> bytes:
    body = _encode(message)
    return len(body).to_bytes(_LENGTH, "big") + body


def encode_write_command(command: WriteExchangesCommand) -> tuple[bytes, ...]:
    """Encode a command to write exchanges. The result has a second part if there is one exchange and it is large."""
    first = command.exchanges[0]
    if len(command.exchanges) > 1 or len(first.request) < _LARGE_REQUEST:
        return (encode_writer_message(command),)
    bare = WriteExchangesCommand(command.number, [replace(first, request=b"")], command.now, len(first.request))
    return encode_writer_message(bare), first.request


async def read_writer_command(reader: asyncio.StreamReader) -> WriterCommand:
    """Read the next command. Raises `IncompleteReadError` when the server is gone."""
    command = _command_decoder.decode(await _read_body(reader))
    if isinstance(command, WriteExchangesCommand) and command.request_size:
        command.exchanges[0].request = await reader.readexactly(command.request_size)
    return command


async def read_writer_report(reader: asyncio.StreamReader) -> WriterReport:
    """Read the next report. Raises `IncompleteReadError` when the writer process is gone."""
    return _report_decoder.decode(await _read_body(reader))


async def _read_body(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(_LENGTH), "big"))
