"""The write queue: writes exchanges in batches in background threads, without blocking the proxy."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

import structlog

from paddock.config.llm import ArchiveConfig
from paddock.errors import Unavailable
from paddock.llm.archive.exchange_encoding import ExchangeEncoder
from paddock.llm.exchange import Exchange
from paddock.model.exchanges import NewExchange
from paddock.store.model_exchanges.exchange_store import ExchangeStore

BATCH_SECONDS = 0.075
"""Seconds between batches."""
MAX_BATCH = 1000
MAX_BATCH_BYTES = 32 * 2**20
_OVERHEAD = 1024
"""Bytes an exchange counts in addition to its content."""
_MIN_PAUSE, _MAX_PAUSE = 0.1, 2.0
_ENCODED_AT_ONCE = 16
"""Exchanges encoded before the thread yields to the event loop."""
_LOG_EVERY = 10.0
log = structlog.get_logger()


@dataclass(slots=True)
class _QueueEntry:
    exchange: Exchange | None
    """`None` for an entry that only waits for all entries before it."""
    size: int
    future: asyncio.Future[None] | None = None
    encoded: NewExchange | None = None
    problem: str | None = None
    """Why the exchange itself cannot be archived, regardless of the disk."""


class ExchangeWriteQueue:
    """The queue of exchanges to be written. Belongs to one event loop."""

    def __init__(
        self,
        exchanges: ExchangeStore,
        encoder: ExchangeEncoder,
        settings: ArchiveConfig,
        threads: Executor,
        written: Callable[[], None],
    ) -> None:
        self.lost_count = 0
        self.waiting_bytes = 0
        self._exchanges = exchanges
        self._encoder = encoder
        self._settings = settings
        self._threads = threads
        self._written = written
        self._queue: deque[_QueueEntry] = deque()
        self._wanted = asyncio.Event()
        self._flush_requested = asyncio.Event()
        self._closing = False
        self._write_error: Unavailable | None = None
        self._next_log = 0.0
        self._task = asyncio.create_task(self._run(), name="archive writer")

    def enqueue(self, exchange: Exchange) -> None:
        """Queue an exchange. Never waits, never raises; if the queue is full, it is dropped and counted."""
        try:
            size = queued_exchange_size(exchange)
            if not self._closing and self.waiting_bytes + size <= self._settings.max_waiting:
                self._add(_QueueEntry(exchange, size))
                return
            reason = "the archive is closed" if self._closing else "more waits than archive.max_waiting allows"
        except Exception as error:
            reason = repr(error)
        self._count_lost(1, reason)

    async def write_now(self, exchange: Exchange) -> None:
        """Write an exchange, and return when it is on disk. Raises `Unavailable` if it was not written."""
        if self._closing:
            raise Unavailable("The archive is closed; the server is stopping.")
        size = queued_exchange_size(exchange)
        if self.waiting_bytes + size > self._settings.max_waiting:
            raise Unavailable("More waits to be archived than archive.max_waiting allows; try again later.")
        await self._wait_for_write(exchange, size)

    async def flush(self) -> None:
        """Wait until all queued exchanges are on disk. Raises `Unavailable`."""
        if not self._closing:
            await self._wait_for_write(None, 0)

    def ensure_writable(self) -> None:
        """Raise `Unavailable` while writes fail."""
        if self._write_error is not None:
            raise Unavailable(
                "No request is answered that cannot be archived (archive.durability is strict). "
                f"{self._write_error.message}"
            )

    async def close(self) -> None:
        """Write all queued exchanges and stop. Exchanges that cannot be written now are lost and counted."""
        self._closing = True
        self._wanted.set()
        self._flush_requested.set()
        await self._task

    async def _wait_for_write(self, exchange: Exchange | None, size: int) -> None:
        future = asyncio.get_running_loop().create_future()
        self._add(_QueueEntry(exchange, size, future))
        self._flush_requested.set()
        await future

    def _add(self, entry: _QueueEntry) -> None:
        self.waiting_bytes += entry.size
        self._queue.append(entry)
        waiting = len(self._queue)
        if waiting == 1:
            self._wanted.set()
        elif waiting == MAX_BATCH:
            self._flush_requested.set()

    async def _run(self) -> None:
        pause = _MIN_PAUSE
        while True:
            if not self._queue and self._write_error is None:
                if self._closing:
                    return
                self._wanted.clear()
                await self._wanted.wait()
            if len(self._queue) < MAX_BATCH:
                await self._pause(BATCH_SECONDS if self._write_error is None else pause)
            try:
                await self._write_batch()
                pause = _MIN_PAUSE
            except Exception as error:
                self._fail(error if isinstance(error, Unavailable) else Unavailable(f"The archive fails: {error!r}."))
                pause = min(_MAX_PAUSE, pause * 2)

    async def _pause(self, seconds: float) -> None:
        if self._closing:
            return
        self._flush_requested.clear()
        if any(entry.future is not None for entry in self._queue):
            return
        try:
            await asyncio.wait_for(self._flush_requested.wait(), seconds)
        except TimeoutError:
            pass

    async def _write_batch(self) -> None:
        """Write one batch, oldest first. Entries leave the queue when they are on disk."""
        batch: list[_QueueEntry] = []
        size = 0
        for entry in self._queue:
            if batch and (len(batch) >= MAX_BATCH or size + entry.size > MAX_BATCH_BYTES):
                break
            batch.append(entry)
            size += entry.size
        if not batch:
            await self._exchanges.check_writable()
        else:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._threads, self._encode_batch, batch)
            await self._store(batch)
        if self._write_error is not None:
            log.info("archive writes succeed again", lost=self.lost_count)
            self._write_error = None
        for entry in batch:
            self._queue.popleft()
            self.waiting_bytes -= entry.size
            if entry.problem is not None:
                self._count_lost(1, entry.problem)
            if entry.future is None or entry.future.done():
                continue
            if entry.problem is None:
                entry.future.set_result(None)
            else:
                entry.future.set_exception(Unavailable(f"The exchange cannot be archived: {entry.problem}."))
        if batch:
            self._written()

    def _encode_batch(self, batch: list[_QueueEntry]) -> None:
        for index, entry in enumerate(batch):
            if index % _ENCODED_AT_ONCE == _ENCODED_AT_ONCE - 1:
                time.sleep(0)
            if entry.exchange is not None and entry.encoded is None:
                try:
                    entry.encoded = self._encoder.encode(entry.exchange)
                except Exception as error:
                    entry.problem = repr(error)
                entry.exchange = None

    async def _store(self, batch: list[_QueueEntry]) -> None:
        rows = [entry.encoded for entry in batch if entry.encoded is not None]
        if not rows:
            return
        try:
            await asyncio.wrap_future(self._exchanges.submit(rows))
        except Unavailable:
            raise
        except Exception as error:
            # Not a disk error but a bad exchange: write the entries one by one, so that the others are kept.
            if len(batch) == 1:
                batch[0].problem = repr(error)
                return
            for entry in batch:
                await self._store([entry])

    def _fail(self, error: Unavailable) -> None:
        self._write_error = error
        self._log_error("could not write archive", error.message)
        rest: deque[_QueueEntry] = deque()
        dropped = 0
        for entry in self._queue:
            if entry.future is None and not self._closing:
                rest.append(entry)
                continue
            # A waiting caller gets the error, and must not find the exchange archived later.
            self.waiting_bytes -= entry.size
            if entry.future is None:
                dropped += 1
            elif not entry.future.done():
                entry.future.set_exception(error)
        self._queue = rest
        if self._closing:
            self._write_error = None
            if dropped:
                self._count_lost(dropped, error.message)

    def _count_lost(self, count: int, reason: str) -> None:
        self.lost_count += count
        self._log_error("exchanges were lost", reason)

    def _log_error(self, message: str, reason: str) -> None:
        now = time.monotonic()
        if now >= self._next_log:
            self._next_log = now + _LOG_EVERY
            log.error(message, reason=reason, lost=self.lost_count, waiting=len(self._queue))


def queued_exchange_size(exchange: Exchange) -> int:
    """Return the bytes that an exchange counts in the queue."""
    return _OVERHEAD + len(exchange.request) + sum([len(piece) for _, piece in exchange.response])
