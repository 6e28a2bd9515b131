"""The interface of archive writers, and the writer that uses threads of this process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import Event, to_thread
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from paddock.config.llm import ArchiveConfig
from paddock.errors import Unavailable
from paddock.llm.archive.compression import Compressor
from paddock.llm.archive.exchange_encoding import ExchangeEncoder
from paddock.llm.archive.search_indexer import ExchangeSearchIndexer, extract_search_text
from paddock.llm.archive.secret_redaction import SecretRedactor
from paddock.llm.archive.write_queue import ExchangeWriteQueue
from paddock.llm.exchange import Exchange
from paddock.store.database import Store
from paddock.store.model_exchanges.exchange_search import ExchangeSearchStore
from paddock.store.model_exchanges.exchange_store import ExchangeStore


class ExchangeWriter(ABC):
    """The only writer of an archive: writes, indexes and deletes exchanges."""

    lost_count: int
    """Number of exchanges dropped because they could not be written."""
    waiting_bytes: int
    """Bytes waiting to be written."""

    @abstractmethod
    def enqueue(self, exchange: Exchange) -> None:
        """Queue an exchange for writing. Never waits, never raises; call it in the event loop's thread."""

    @abstractmethod
    async def write_now(self, exchange: Exchange) -> None:
        """Write an exchange, and return when it is on disk. Raises `Unavailable` if it was not written."""

    def prepare_to_write(self) -> None:  # noqa: B027 - in-process writers are always ready
        """Get ready, because an exchange will follow soon."""

    @property
    def is_crowded(self) -> bool:
        """True if the queue is so long that new requests should `wait_for_capacity`."""
        return False

    async def wait_for_capacity(self) -> None:  # noqa: B027 - not needed by writers that are never crowded
        """Wait until the queue is shorter, for a bounded time."""

    @abstractmethod
    async def flush(self) -> None:
        """Wait until all queued exchanges are on disk. Raises `Unavailable`."""

    @abstractmethod
    def ensure_writable(self) -> None:
        """Raise `Unavailable` while writes fail."""

    @abstractmethod
    async def wait_until_searchable(self) -> None:
        """Wait until all queued exchanges are in the full-text index. Raises `Unavailable`."""

    @abstractmethod
    async def delete(self, numbers: Sequence[int]) -> int:
        """Delete exchanges, and return their number. Raises `Unavailable`."""

    @abstractmethod
    async def close(self) -> None:
        """Write all queued exchanges and stop."""


class InProcessExchangeWriter(ExchangeWriter):
    """Writes in threads of this process."""

    def __init__(
        self, store: Store, settings: ArchiveConfig, secrets: Iterable[str], written: Callable[[], None]
    ) -> None:
        self._on_written = written
        self._threads = ThreadPoolExecutor(2, "archive")
        self._exchanges = ExchangeStore(store, lambda raw: Compressor().compress(raw), extract_search_text)
        self._write_event = Event()
        preparer = ExchangeEncoder(SecretRedactor(settings, secrets), self._exchanges.was_stored_recently)
        self._writer = ExchangeWriteQueue(self._exchanges, preparer, settings, self._threads, self._written)
        self._indexer = ExchangeSearchIndexer(
            ExchangeSearchStore(store), self._threads, lambda: self._write_event, self._busy
        )

    @classmethod
    async def open(
        cls, store: Store, settings: ArchiveConfig, secrets: Iterable[str], written: Callable[[], None]
    ) -> Self:
        """Open the full-text index and start writing. Raises `Unavailable`."""
        await ExchangeSearchStore(store).open()
        return cls(store, settings, secrets, written)

    @property
    def lost_count(self) -> int:  # type: ignore[override]
        return self._writer.lost_count

    @property
    def waiting_bytes(self) -> int:  # type: ignore[override]
        return self._writer.waiting_bytes

    @property
    def write_problem(self) -> str | None:
        """Why writes fail at present; `None` if they succeed."""
        try:
            self._writer.ensure_writable()
        except Unavailable as error:
            return error.message
        return None

    def enqueue(self, exchange: Exchange) -> None:
        self._writer.enqueue(exchange)

    async def write_now(self, exchange: Exchange) -> None:
        await self._writer.write_now(exchange)

    async def flush(self) -> None:
        await self._writer.flush()

    def ensure_writable(self) -> None:
        self._writer.ensure_writable()

    async def wait_until_searchable(self) -> None:
        await self._writer.flush()
        await self._indexer.index_all()

    async def delete(self, numbers: Sequence[int]) -> int:
        return await self._exchanges.remove(numbers)

    async def close(self) -> None:
        await self._writer.close()
        await self._indexer.close()
        await to_thread(self._threads.shutdown)

    def _busy(self) -> bool:
        return self._writer.waiting_bytes > 0

    def _written(self) -> None:
        event, self._write_event = self._write_event, Event()
        event.set()
        self._on_written()
