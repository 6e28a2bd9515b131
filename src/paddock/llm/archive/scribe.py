"""Who writes the archive: exchanges, the words they are found by, and what is to be forgotten."""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import Event, to_thread
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from paddock.config.llm import ArchiveConfig
from paddock.errors import Unavailable
from paddock.llm.archive.indexer import Indexer, words_of
from paddock.llm.archive.packing import Packer
from paddock.llm.archive.prepare import Preparer
from paddock.llm.archive.redact import Redactor
from paddock.llm.archive.writer import Writer
from paddock.llm.exchange import Exchange
from paddock.store.database import Store
from paddock.store.exchange_words import WordStore
from paddock.store.exchanges import ExchangeStore


class Scribe(ABC):
    """Writes; nobody else does at the same time."""

    lost: int
    """How many exchanges were dropped because they could not be written."""
    waiting_bytes: int
    """How much waits to be written."""

    @abstractmethod
    def keep(self, exchange: Exchange) -> None:
        """Have an exchange written in a moment. Never waits, never raises; to be called in the event loop's thread."""

    @abstractmethod
    async def keep_now(self, exchange: Exchange) -> None:
        """Return once the exchange is on disk. Raises `Unavailable`, and then it is not kept."""

    def expect(self) -> None:  # noqa: B027 - who is always there need not be told
        """There will be something to keep soon."""

    @property
    def crowded(self) -> bool:
        """Whether so much waits that `room` should be waited for before there is more."""
        return False

    async def room(self) -> None:  # noqa: B027 - there always is some where nothing gets crowded
        """Return once less waits, or after a moment in any case."""

    @abstractmethod
    async def flush(self) -> None:
        """Return once all that was kept before is on disk. Raises `Unavailable`."""

    @abstractmethod
    def check(self) -> None:
        """Raise `Unavailable` while nothing can be written."""

    @abstractmethod
    async def catch_up(self) -> None:
        """Return once all that was kept before can be found by what was said. Raises `Unavailable`."""

    @abstractmethod
    async def remove(self, numbers: Sequence[int]) -> int:
        """Forget exchanges, and say how many there were. Raises `Unavailable`."""

    @abstractmethod
    async def close(self) -> None:
        """Write all that waits and stop."""


class OwnScribe(Scribe):
    """Writes in threads of this process."""

    def __init__(
        self, store: Store, settings: ArchiveConfig, secrets: Iterable[str], written: Callable[[], None]
    ) -> None:
        self._told = written
        self._threads = ThreadPoolExecutor(2, "archive")
        self._exchanges = ExchangeStore(store, lambda raw: Packer().pack(raw), words_of)
        self._news = Event()
        preparer = Preparer(Redactor(settings, secrets), self._exchanges.knows)
        self._writer = Writer(self._exchanges, preparer, settings, self._threads, self._written)
        self._indexer = Indexer(WordStore(store), self._threads, lambda: self._news, self._busy)

    @classmethod
    async def open(
        cls, store: Store, settings: ArchiveConfig, secrets: Iterable[str], written: Callable[[], None]
    ) -> Self:
        """Begin to write. Raises `Unavailable`."""
        await WordStore(store).open()
        return cls(store, settings, secrets, written)

    @property
    def lost(self) -> int:  # type: ignore[override]
        return self._writer.lost

    @property
    def waiting_bytes(self) -> int:  # type: ignore[override]
        return self._writer.waiting_bytes

    @property
    def trouble(self) -> str | None:
        """Why nothing can be written at present."""
        try:
            self._writer.check()
        except Unavailable as error:
            return error.message
        return None

    def keep(self, exchange: Exchange) -> None:
        self._writer.keep(exchange)

    async def keep_now(self, exchange: Exchange) -> None:
        await self._writer.keep_now(exchange)

    async def flush(self) -> None:
        await self._writer.flush()

    def check(self) -> None:
        self._writer.check()

    async def catch_up(self) -> None:
        await self._writer.flush()
        await self._indexer.catch_up()

    async def remove(self, numbers: Sequence[int]) -> int:
        return await self._exchanges.remove(numbers)

    async def close(self) -> None:
        await self._writer.close()
        await self._indexer.close()
        await to_thread(self._threads.shutdown)

    def _busy(self) -> bool:
        return self._writer.waiting_bytes > 0

    def _written(self) -> None:
        news, self._news = self._news, Event()
        news.set()
        self._told()
