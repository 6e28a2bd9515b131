"""Writes the archive in a process of its own, so that keeping what was said takes no time from what is being said.

Started by the server when the first exchange is to be kept, with a socket as its only way in and out. When the server
is gone, for whatever reason, it writes what it was given and ends.
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
from paddock.llm.archive.letters import (
    Begin,
    CatchUp,
    Done,
    FromArchivist,
    Keep,
    Remove,
    Status,
    ToArchivist,
    pack,
    read_order,
)
from paddock.llm.archive.scribe import OwnScribe
from paddock.store.database import Store

READ_AHEAD = 2**20
HELD = 4 * 2**20
"""Bytes of exchanges that are held here at a time. More stay with the server, where they take less memory."""
AGAIN = 0.2
"""Seconds after which what could not be written is tried again."""
LAST_TRY = 5.0
"""Seconds a full disk is waited for when the server is gone."""
NICE = 10
log = structlog.get_logger()


class Archivist:
    """Sees to letters, several at a time."""

    def __init__(self, scribe: OwnScribe, writer: asyncio.StreamWriter) -> None:
        self._scribe = scribe
        self._writer = writer
        self._tasks: set[asyncio.Task[None]] = set()
        self._status = Status(0, None)

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Until the server is gone; then finish."""
        watch = asyncio.create_task(self._watch())
        try:
            while True:
                if self._scribe.waiting_bytes > HELD and self._scribe.trouble is None:
                    await self._gain()
                order = await read_order(reader)
                # Before anything else can happen, so that a later letter finds it kept.
                if isinstance(order, Keep) and not order.now:
                    for exchange in order.exchanges:
                        self._scribe.keep(exchange)
                task = asyncio.create_task(self._see_to(order))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=LAST_TRY)
            watch.cancel()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(watch, *self._tasks, return_exceptions=True)

    async def _gain(self) -> None:
        try:
            await self._scribe.flush()
        except Unavailable:
            pass  # The disk is full, of which the server is told; who asks for anything else is not kept waiting.

    async def _see_to(self, order: ToArchivist) -> None:
        number = getattr(order, "number", 0)
        try:
            result = await self._do(order)
        except PaddockError as error:
            self._say(Done(number, error.message))
        except Exception as error:
            log.exception("the archive failed")
            self._say(Done(number, f"The archive failed: {type(error).__name__}."))
        else:
            self._say(Done(number, None, result))

    async def _do(self, order: ToArchivist) -> int:
        scribe = self._scribe
        if isinstance(order, Keep):
            if order.now:
                await scribe.keep_now(order.exchanges[0])
            else:
                await self._written()
        elif isinstance(order, Remove):
            return await scribe.remove(order.numbers)
        elif isinstance(order, CatchUp):
            await scribe.catch_up()
        else:
            await scribe.flush()
        return 0

    async def _written(self) -> None:
        """Wait for the disk, however long it is full."""
        while True:
            try:
                await self._scribe.flush()
                return
            except Unavailable:
                self._tell_status()
                await asyncio.sleep(AGAIN)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(AGAIN)
            self._tell_status()

    def _tell_status(self) -> None:
        status = Status(self._scribe.lost, self._scribe.trouble)
        if status != self._status:
            self._status = status
            self._say(status)

    def _say(self, letter: FromArchivist) -> None:
        if not self._writer.is_closing():
            self._writer.write(pack(letter))


async def work(sock: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=sock, limit=READ_AHEAD)
    order = await read_order(reader)
    if not isinstance(order, Begin):
        raise TypeError("the first letter says where to write")
    settings = ArchiveConfig.model_validate_json(order.settings)
    if settings.durability != "strict":
        os.nice(NICE)
    async with await Store.open(order.database) as store:
        scribe = await OwnScribe.open(store, settings, order.secrets, lambda: None)
        try:
            await Archivist(scribe, writer).serve(reader)
        finally:
            await scribe.close()
    writer.close()


def main() -> None:
    # Whoever stops the server stops us by it; a signal to the whole group must not, or what waits would be lost.
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
    asyncio.run(work(socket.socket(fileno=int(sys.argv[1]))))


if __name__ == "__main__":
    main()
