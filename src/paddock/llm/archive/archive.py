"""Keeps what models were asked and what they answered, and finds it again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Self

import structlog

from paddock.config.llm import ArchiveConfig
from paddock.errors import NotFound, Unavailable
from paddock.llm.archive.export import Form, export
from paddock.llm.archive.indexer import words_of
from paddock.llm.archive.packing import Packer
from paddock.llm.archive.prepare import restore
from paddock.llm.archive.remote import RemoteScribe
from paddock.llm.archive.scribe import OwnScribe, Scribe
from paddock.llm.archive.telling import tell_thread
from paddock.llm.archive.threads import Thread, find_threads
from paddock.llm.archive.words import query
from paddock.llm.exchange import Exchange
from paddock.model.exchanges import Filters, Summary
from paddock.store.database import Store
from paddock.store.exchange_words import WordStore
from paddock.store.exchanges import ExchangeStore

EVERYTHING = Filters()
MOST_IN_A_CONVERSATION = 5000
_LONG_AGO = 86400.0
"""Seconds within which what an exchange goes on with was said."""
_PATIENCE = 1.0
"""Seconds that who reads waits for what was said just now."""
_PAGE = 256
_REMOVED_AT_ONCE = 25
"""Few, because nobody else can write meanwhile."""
log = structlog.get_logger()


class Archive:
    """All exchanges. Make it with `Archive.open`, and `close` it before the store."""

    strict: bool
    """Whether no answer may end before it is on disk."""

    def __init__(self, store: Store, settings: ArchiveConfig) -> None:
        self.strict = settings.enabled and settings.durability == "strict"
        self._settings = settings
        self._threads = ThreadPoolExecutor(1, "archive-read")
        self._exchanges = ExchangeStore(store, lambda raw: Packer().pack(raw), words_of)
        self._bell = asyncio.Event()
        self._following = True
        self._scribe: Scribe
        self._writes = True
        self._keeper = asyncio.create_task(self._forget_the_old(), name="archive retention")

    @classmethod
    async def open(
        cls, store: Store, settings: ArchiveConfig, secrets: Iterable[str] = (), *, apart: bool = False
    ) -> Self:
        """Begin to keep exchanges. `secrets` are never kept, wherever they stand. Raises `Unavailable`.

        `apart` has them written by a process of its own, which leaves more time to this one.
        """
        archive = cls(store, settings)
        if apart:
            await WordStore(store).open()
            archive._scribe = RemoteScribe(str(store.path), settings, secrets, archive._ring)
        else:
            archive._scribe = await OwnScribe.open(store, settings, secrets, archive._ring)
        return archive

    @classmethod
    def reading(cls, store: Store, settings: ArchiveConfig) -> Self:
        """The archive of a process that only reads: it keeps and removes nothing."""
        archive = cls(store, settings.model_copy(update={"enabled": False, "keep": None}))
        archive._writes = False
        return archive

    @property
    def enabled(self) -> bool:
        """Whether anything is kept."""
        return self._settings.enabled

    @property
    def lost(self) -> int:
        """How many exchanges were dropped because they could not be written."""
        return self._scribe.lost

    @property
    def waiting_bytes(self) -> int:
        """How much waits to be written."""
        return self._scribe.waiting_bytes

    def keep(self, exchange: Exchange) -> None:
        """Have an exchange written in a moment. Never waits, never raises; to be called in the event loop's thread."""
        if self._settings.enabled:
            self._scribe.keep(exchange)

    async def keep_now(self, exchange: Exchange) -> None:
        """Write an exchange and return once it is on disk. Raises `Unavailable`, and then it is not kept."""
        if self._settings.enabled:
            await self._scribe.keep_now(exchange)

    @property
    def crowded(self) -> bool:
        """Whether more is said than can be written, so that whoever says more should wait for `room`."""
        return self._scribe.crowded

    async def room(self) -> None:
        """Return once less waits to be written, or after two seconds in any case."""
        await self._scribe.room()

    def check(self) -> None:
        """Somebody asks. Raises `Unavailable` if answers have to be on disk, and nothing can be written."""
        if self._settings.enabled:
            self._scribe.expect()
        if self.strict:
            self._scribe.check()

    async def flush(self) -> None:
        """Return once all that was kept so far is on disk. Raises `Unavailable`."""
        await self._scribe.flush()

    async def catch_up(self) -> None:
        """Return once all that was kept so far can be found by what was said. Raises `Unavailable`."""
        await self._scribe.catch_up()

    async def close(self) -> None:
        """Write all that waits and stop. Those who follow come to an end."""
        self.stop_following()
        self._keeper.cancel()
        await asyncio.gather(self._keeper, return_exceptions=True)
        await self._scribe.close()
        await asyncio.to_thread(self._threads.shutdown)

    async def get(self, tenant: str, exchange_id: str) -> Exchange:
        """An exchange with all that was said. Raises `NotFound`."""
        return (await self.show(tenant, exchange_id))[1]

    async def show(self, tenant: str, exchange_id: str) -> tuple[Summary, Exchange]:
        """An exchange with all that was said, and its summary. Raises `NotFound`."""
        await self._settle()
        stored = await self._exchanges.get(tenant, exchange_id)
        exchange = await asyncio.get_running_loop().run_in_executor(self._threads, restore, stored)
        return stored.summary, exchange

    async def list(
        self, tenant: str, filters: Filters = EVERYTHING, *, cursor: str | None = None, limit: int = 100
    ) -> tuple[Sequence[Summary], str | None]:
        """Exchanges, newest first, and the cursor of the next page. Raises `InvalidInput` for a senseless text."""
        if cursor is None:
            await self._settle()
        found = await self._exchanges.list(tenant, filters, match=_match(filters), before=cursor, limit=limit + 1)
        return found[:limit], found[limit - 1].id if len(found) > limit else None

    async def search(
        self, tenant: str, text: str, *, cursor: str | None = None, limit: int = 100
    ) -> tuple[Sequence[Summary], str | None]:
        """Exchanges in which all these words, "phrases" and begin* were said, newest first."""
        return await self.list(tenant, Filters(text=text), cursor=cursor, limit=limit)

    async def exchanges(self, tenant: str, filters: Filters = EVERYTHING) -> AsyncIterator[Exchange]:
        """All that match, oldest first, with all that was said."""
        after = ""
        while True:
            page = await self._exchanges.list(tenant, filters, match=_match(filters), after=after, limit=_PAGE)
            for summary in page:
                after = summary.id
                yield await self.get(tenant, summary.id)
            if len(page) < _PAGE:
                return

    async def conversations(self, tenant: str, sandbox_id: str) -> Sequence[Thread]:
        """What was said in a sandbox: the main conversation first, then sub-agents, branches and side calls."""
        await self._settle()
        filters = Filters(sandbox=sandbox_id)
        tree = await self._exchanges.tree(tenant, filters, limit=MOST_IN_A_CONVERSATION)
        threads = await asyncio.get_running_loop().run_in_executor(self._threads, find_threads, tree)
        known = {thread.id: thread for thread in threads}
        told = []
        for thread in threads:
            try:
                await tell_thread(self._exchanges, tenant, thread, known)
            except NotFound:
                continue  # Deleted in the meantime.
            told.append(thread)
        return told

    async def conversation(self, tenant: str, exchange_id: str) -> Thread:
        """The conversation that an exchange is part of, found among those of its sandbox or key. Raises `NotFound`."""
        await self._settle()
        summary = (await self._exchanges.get(tenant, exchange_id)).summary
        whose = Filters(sandbox=summary.sandbox, key=None if summary.sandbox else summary.key_id)
        for age in (_LONG_AGO, 0.0):
            filters = replace(whose, since=summary.at - age)
            tree = await self._exchanges.tree(tenant, filters, limit=MOST_IN_A_CONVERSATION)
            threads = await asyncio.get_running_loop().run_in_executor(self._threads, find_threads, tree)
            for thread in threads:
                if any(each.id == exchange_id for each in thread.exchanges):
                    await tell_thread(self._exchanges, tenant, thread, {each.id: each for each in threads})
                    return thread
        raise NotFound(f"There is no exchange {exchange_id[:80]!r}.")

    async def _settle(self) -> None:
        """Let who asks see what was kept before, unless it cannot be written now."""
        if self._writes and self._scribe.waiting_bytes:
            try:
                await asyncio.wait_for(self._scribe.flush(), _PATIENCE)
            except (Unavailable, TimeoutError):
                pass

    def export(
        self, tenant: str, filters: Filters = EVERYTHING, form: Form = "openai", *, unanswered: bool = False
    ) -> AsyncIterator[bytes]:
        """Conversations as lines of JSON, in the message form of OpenAI's chat API or of Anthropic's.

        Those that nobody answered are left out, unless they are asked for.
        """
        return export(self._exchanges, tenant, filters, _match(filters), form, unanswered=unanswered)

    async def delete(self, tenant: str, exchange_id: str) -> None:
        """Forget an exchange, and what was said only in it. Raises `NotFound`."""
        stored = await self._exchanges.get(tenant, exchange_id)
        await self._scribe.remove([stored.summary.number])

    async def delete_all(self, tenant: str, filters: Filters) -> int:
        """Forget all that match, and say how many."""
        removed = 0
        match = _match(filters)
        while numbers := await self._exchanges.ids(tenant, filters, match, _REMOVED_AT_ONCE):
            removed += await self._scribe.remove(numbers)
        return removed

    async def follow(self, tenant: str, after: int | None = None) -> AsyncIterator[Summary]:
        """Exchanges in the order in which they are written, from now on or after a number. Ends when this closes."""
        place = after
        if place is None:
            _, place = await self._exchanges.written_after(0, tenant, 0)
        while True:
            bell = self._bell
            found, newest = await self._exchanges.written_after(place, tenant, _PAGE)
            for summary in found:
                yield summary
            if len(found) == _PAGE:
                place = found[-1].number
                continue
            place = max(place, newest)
            if not self._following:
                return
            await bell.wait()

    def stop_following(self) -> None:
        """Let those who follow finish with what has been written."""
        self._following = False
        self._ring()

    def _ring(self) -> None:
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()

    async def _forget_the_old(self) -> None:
        keep = self._settings.keep
        while keep is not None:
            try:
                for tenant in await self._exchanges.tenants():
                    removed = await self.delete_all(tenant, Filters(until=time.time() - keep))
                    if removed:
                        log.info("forgot old exchanges", tenant=tenant, count=removed)
            except Unavailable as error:
                log.warning("old exchanges cannot be removed", reason=error.message)
            await asyncio.sleep(min(3600.0, max(0.05, keep / 20)))


def _match(filters: Filters) -> str | None:
    return None if filters.text is None else query(filters.text)
