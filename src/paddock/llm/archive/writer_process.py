"""The archive's writer process, which keeps the cost of writing away from the server.

The server starts it for the first exchange, with a socket as its only channel. When the server is gone, for any
reason, the process writes what it has received and ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys

import structlog

from paddock.config.llm import ArchiveConfig
from paddock.errors import PaddockError, Unavailable
from paddock.llm.archive.writer_api import InProcessExchangeWriter
from paddock.llm.archive.writer_process_messages import (
    CommandDoneReport,
    DeleteExchangesCommand,
    IndexAllCommand,
    StartWriterCommand,
    WriteExchangesCommand,
    WriterCommand,
    WriterReport,
    WriterStatusReport,
    encode_writer_message,
    read_writer_command,
)
from paddock.store.database import Store

READ_AHEAD_BYTES = 2**20
MAX_HELD_BYTES = 4 * 2**20
"""Bytes of exchanges held in this process at a time. More stay with the server, where they take less memory."""
RETRY_SECONDS = 0.2
"""Seconds after which a failed write is retried."""
SHUTDOWN_SECONDS = 5.0
"""Seconds to wait for a full disk when the server is gone."""
WRITER_NICENESS = 10
log = structlog.get_logger()


class ArchiveWriterProcess:
    """Executes commands of the server, several at a time."""

    def __init__(self, archive_writer: InProcessExchangeWriter, writer: asyncio.StreamWriter) -> None:
        self._archive_writer = archive_writer
        self._writer = writer
        self._tasks: set[asyncio.Task[None]] = set()
        self._status = WriterStatusReport(0, None)

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Execute commands until the server is gone, then finish the pending ones."""
        watch = asyncio.create_task(self._report_periodically())
        try:
            while True:
                if self._archive_writer.waiting_bytes > MAX_HELD_BYTES and self._archive_writer.write_problem is None:
                    await self._drain()
                command = await read_writer_command(reader)
                # Enqueue before yielding, so that a later command such as a flush includes it.
                if isinstance(command, WriteExchangesCommand) and not command.now:
                    for exchange in command.exchanges:
                        self._archive_writer.enqueue(exchange)
                task = asyncio.create_task(self._handle(command))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=SHUTDOWN_SECONDS)
            watch.cancel()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(watch, *self._tasks, return_exceptions=True)

    async def _drain(self) -> None:
        try:
            await self._archive_writer.flush()
        except Unavailable:
            pass  # The disk is full, which the status reports; other commands must not wait for it.

    async def _handle(self, command: WriterCommand) -> None:
        number = getattr(command, "number", 0)
        try:
            result = await self._execute(command)
        except PaddockError as error:
            self._send(CommandDoneReport(number, error.message))
        except Exception as error:
            log.exception("archive command failed")
            self._send(CommandDoneReport(number, f"The archive failed: {type(error).__name__}."))
        else:
            self._send(CommandDoneReport(number, None, result))

    async def _execute(self, command: WriterCommand) -> int:
        archive_writer = self._archive_writer
        if isinstance(command, WriteExchangesCommand):
            if command.now:
                await archive_writer.write_now(command.exchanges[0])
            else:
                await self._wait_until_written()
        elif isinstance(command, DeleteExchangesCommand):
            return await archive_writer.delete(command.numbers)
        elif isinstance(command, IndexAllCommand):
            await archive_writer.wait_until_searchable()
        else:
            await archive_writer.flush()
        return 0

    async def _wait_until_written(self) -> None:
        """Wait until everything is written, however long the disk is full."""
        while True:
            try:
                await self._archive_writer.flush()
                return
            except Unavailable:
                self._report_status()
                await asyncio.sleep(RETRY_SECONDS)

    async def _report_periodically(self) -> None:
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            self._report_status()

    def _report_status(self) -> None:
        status = WriterStatusReport(self._archive_writer.lost_count, self._archive_writer.write_problem)
        if status != self._status:
            self._status = status
            self._send(status)

    def _send(self, report: WriterReport) -> None:
        if not self._writer.is_closing():
            self._writer.write(encode_writer_message(report))


async def run_archive_writer(sock: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=sock, limit=READ_AHEAD_BYTES)
    command = await read_writer_command(reader)
    if not isinstance(command, StartWriterCommand):
        raise TypeError("the first message must be StartWriterCommand")
    settings = ArchiveConfig.model_validate_json(command.settings)
    if settings.durability != "strict":
        os.nice(WRITER_NICENESS)
    async with await Store.open(command.database) as store:
        archive_writer = await InProcessExchangeWriter.open(store, settings, command.secrets, lambda: None)
        try:
            await ArchiveWriterProcess(archive_writer, writer).serve(reader)
        finally:
            await archive_writer.close()
    writer.close()


def main() -> None:
    # This process ends with the server. Signals to the process group are ignored, or queued exchanges would be lost.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    renderer = structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
    asyncio.run(run_archive_writer(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    main()
