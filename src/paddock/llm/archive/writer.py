"""Writes exchanges behind the proxy's back: many at a time, in threads, and without ever holding it up."""

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
from paddock.llm.archive.prepare import Preparer
from paddock.llm.exchange import Exchange
from paddock.model.exchanges import Fresh
from paddock.store.exchanges import ExchangeStore

EVERY = 0.075
"""Seconds between batches."""
LARGEST_BATCH = 1000
LARGEST_BYTES = 32 * 2**20
_OVERHEAD = 1024
"""What an exchange weighs besides its bytes."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_UNINTERRUPTED = 16
"""Exchanges that are prepared before the event loop gets a chance to go on."""
_SHOUT_EVERY = 10.0
log = structlog.get_logger()


@dataclass(slots=True)
class _Entry:
    exchange: Exchange | None
    """`None` where somebody only waits for all before it."""
    size: int
    future: asyncio.Future[None] | None = None
    fresh: Fresh | None = None
    problem: str | None = None
    """Why it cannot be archived, whatever the disk does."""


class Writer:
    """The queue of exchanges on their way to the disk. Belongs to one event loop."""

    def __init__(
        self,
        exchanges: ExchangeStore,
        preparer: Preparer,
        settings: ArchiveConfig,
        threads: Executor,
        written: Callable[[], None],
    ) -> None:
        self.lost = 0
        self.waiting_bytes = 0
        self._exchanges = exchanges
        self._preparer = preparer
        self._settings = settings
        self._threads = threads
        self._written = written
        self._queue: deque[_Entry] = deque()
        self._wanted = asyncio.Event()
        self._hurry = asyncio.Event()
        self._closing = False
        self._trouble: Unavailable | None = None
        self._next_shout = 0.0
        self._task = asyncio.create_task(self._run(), name="archive writer")

    def keep(self, exchange: Exchange) -> None:
        """Take an exchange. Never waits and never raises; beyond what may wait it is dropped and counted."""
        try:
            size = weight(exchange)
            if not self._closing and self.waiting_bytes + size <= self._settings.max_waiting:
                self._add(_Entry(exchange, size))
                return
            reason = "the archive is closed" if self._closing else "more waits than archive.max_waiting allows"
        except Exception as error:
            reason = repr(error)
        self._lose(1, reason)

    async def keep_now(self, exchange: Exchange) -> None:
        """Return once the exchange is on disk. Raises `Unavailable`, and then it is not."""
        if self._closing:
            raise Unavailable("The archive is closed; the server is stopping.")
        size = weight(exchange)
        if self.waiting_bytes + size > self._settings.max_waiting:
            raise Unavailable("More waits to be archived than archive.max_waiting allows; try again later.")
        await self._through(exchange, size)

    async def flush(self) -> None:
        """Return once all that was kept before is on disk. Raises `Unavailable`."""
        if not self._closing:
            await self._through(None, 0)

    def check(self) -> None:
        """Raise `Unavailable` while nothing can be written."""
        if self._trouble is not None:
            raise Unavailable(
                f"Nothing is answered that cannot be archived (archive.durability is strict). {self._trouble.message}"
            )

    async def close(self) -> None:
        """Write all that waits. What cannot be written now is lost, and counted."""
        self._closing = True
        self._wanted.set()
        self._hurry.set()
        await self._task

    async def _through(self, exchange: Exchange | None, size: int) -> None:
        future = asyncio.get_running_loop().create_future()
        self._add(_Entry(exchange, size, future))
        self._hurry.set()
        await future

    def _add(self, entry: _Entry) -> None:
        self.waiting_bytes += entry.size
        self._queue.append(entry)
        waiting = len(self._queue)
        if waiting == 1:
            self._wanted.set()
        elif waiting == LARGEST_BATCH:
            self._hurry.set()

    async def _run(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            if not self._queue and self._trouble is None:
                if self._closing:
                    return
                self._wanted.clear()
                await self._wanted.wait()
            if len(self._queue) < LARGEST_BATCH:
                await self._rest(EVERY if self._trouble is None else pause)
            try:
                await self._write_some()
                pause = _FIRST_PAUSE
            except Exception as error:
                self._fail(error if isinstance(error, Unavailable) else Unavailable(f"The archive fails: {error!r}."))
                pause = min(_LONGEST_PAUSE, pause * 2)

    async def _rest(self, seconds: float) -> None:
        if self._closing:
            return
        self._hurry.clear()
        if any(entry.future is not None for entry in self._queue):
            return
        try:
            await asyncio.wait_for(self._hurry.wait(), seconds)
        except TimeoutError:
            pass

    async def _write_some(self) -> None:
        """Write as many as fit one batch, oldest first. They leave the queue once they are on disk."""
        batch: list[_Entry] = []
        size = 0
        for entry in self._queue:
            if batch and (len(batch) >= LARGEST_BATCH or size + entry.size > LARGEST_BYTES):
                break
            batch.append(entry)
            size += entry.size
        if not batch:
            await self._exchanges.probe()
        else:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._threads, self._prepare, batch)
            await self._store(batch)
        if self._trouble is not None:
            log.info("the archive can be written again", lost=self.lost)
            self._trouble = None
        for entry in batch:
            self._queue.popleft()
            self.waiting_bytes -= entry.size
            if entry.problem is not None:
                self._lose(1, entry.problem)
            if entry.future is None or entry.future.done():
                continue
            if entry.problem is None:
                entry.future.set_result(None)
            else:
                entry.future.set_exception(Unavailable(f"The exchange cannot be archived: {entry.problem}."))
        if batch:
            self._written()

    def _prepare(self, batch: list[_Entry]) -> None:
        for index, entry in enumerate(batch):
            if index % _UNINTERRUPTED == _UNINTERRUPTED - 1:
                time.sleep(0)
            if entry.exchange is not None and entry.fresh is None:
                try:
                    entry.fresh = self._preparer.prepare(entry.exchange)
                except Exception as error:
                    entry.problem = repr(error)
                entry.exchange = None

    async def _store(self, batch: list[_Entry]) -> None:
        rows = [entry.fresh for entry in batch if entry.fresh is not None]
        if not rows:
            return
        try:
            await asyncio.wrap_future(self._exchanges.submit(rows))
        except Unavailable:
            raise
        except Exception as error:
            # Not the disk but one of them; the others must not suffer for it.
            if len(batch) == 1:
                batch[0].problem = repr(error)
                return
            for entry in batch:
                await self._store([entry])

    def _fail(self, error: Unavailable) -> None:
        self._trouble = error
        self._shout("the archive cannot be written", error.message)
        rest: deque[_Entry] = deque()
        dropped = 0
        for entry in self._queue:
            if entry.future is None and not self._closing:
                rest.append(entry)
                continue
            # Whoever waits is told, and must not find it archived later.
            self.waiting_bytes -= entry.size
            if entry.future is None:
                dropped += 1
            elif not entry.future.done():
                entry.future.set_exception(error)
        self._queue = rest
        if self._closing:
            self._trouble = None
            if dropped:
                self._lose(dropped, error.message)

    def _lose(self, count: int, reason: str) -> None:
        self.lost += count
        self._shout("exchanges were lost", reason)

    def _shout(self, what: str, reason: str) -> None:
        now = time.monotonic()
        if now >= self._next_shout:
            self._next_shout = now + _SHOUT_EVERY
            log.error(what, reason=reason, lost=self.lost, waiting=len(self._queue))


def weight(exchange: Exchange) -> int:
    """How much of what may wait an exchange takes."""
    return _OVERHEAD + len(exchange.request) + sum([len(piece) for _, piece in exchange.response])
