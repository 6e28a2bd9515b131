"""The archive of exchanges: write, list, search, export and delete them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Self

import structlog

from paddock.config.llm import ArchiveConfig
from paddock.errors import NotFound, Unavailable
from paddock.llm.archive.compression import Compressor
from paddock.llm.archive.conversation_export import ExportForm, export_conversation_lines
from paddock.llm.archive.conversation_messages import (
    ConversationSources,
    load_conversation_messages,
    read_conversation_sources,
)
from paddock.llm.archive.conversation_threads import ConversationThread, group_exchanges_into_conversations
from paddock.llm.archive.exchange_documents import conversation_content_json, exchange_content_json
from paddock.llm.archive.exchange_encoding import ArchivedAnswer, decode_archived_answer, decode_archived_exchange
from paddock.llm.archive.remote_writer import RemoteExchangeWriter
from paddock.llm.archive.search_indexer import extract_search_text
from paddock.llm.archive.search_text import build_full_text_query
from paddock.llm.archive.writer_api import ExchangeWriter, InProcessExchangeWriter
from paddock.llm.exchange import Exchange
from paddock.llm.offload.worker_pool import OffloadWorkerPool
from paddock.model.exchanges import ExchangeFilters, ExchangeSummary
from paddock.store.database import Store
from paddock.store.model_exchanges.exchange_search import ExchangeSearchStore
from paddock.store.model_exchanges.exchange_store import ExchangeStore

ALL_EXCHANGES = ExchangeFilters()
MAX_CONVERSATION_EXCHANGES = 5000
_LOOK_BACK_SECONDS = 86400.0
"""Seconds before an exchange in which earlier exchanges of its conversation are looked for first."""
_MAX_READ_WAIT = 1.0
"""Seconds a reader waits for pending writes."""
_LARGE_BYTES = 2**20
"""Bytes of content above which a worker process parses and writes it."""
_PAGE = 256
_ANSWER_BATCH_BYTES = 16 * 2**20
"""Bytes of answers read in one transaction."""
_DELETED_AT_ONCE = 25
"""Small, because a deletion blocks all other writes."""
log = structlog.get_logger()


class ExchangeArchive:
    """All archived exchanges. Create it with `ExchangeArchive.open`, and `close` it before the store."""

    strict: bool
    """Whether every answer must be on disk before it ends."""

    def __init__(
        self,
        store: Store,
        settings: ArchiveConfig,
        secrets: Iterable[str] = (),
        workers: OffloadWorkerPool | None = None,
    ) -> None:
        """`workers` parse and write long exchanges, which would block other clients."""
        self._workers = workers
        self._secrets = tuple(secrets)
        self.strict = settings.enabled and settings.durability == "strict"
        self._settings = settings
        self._threads = ThreadPoolExecutor(1, "archive-read")
        self._exchanges = ExchangeStore(store, lambda raw: Compressor().compress(raw), extract_search_text)
        self._written = asyncio.Event()
        self._followers_active = True
        self._writer: ExchangeWriter
        self._writes = True
        self._retention = asyncio.create_task(self._delete_expired(), name="archive retention")

    @classmethod
    async def open(
        cls,
        store: Store,
        settings: ArchiveConfig,
        secrets: Iterable[str] = (),
        *,
        separate_process: bool = False,
        workers: OffloadWorkerPool | None = None,
    ) -> Self:
        """Open the archive for writing. `secrets` are redacted everywhere. Raises `Unavailable`.

        With `separate_process`, another process does the writing, which relieves this one.
        """
        archive = cls(store, settings, secrets, workers)
        if separate_process:
            await ExchangeSearchStore(store).open()
            archive._writer = RemoteExchangeWriter(str(store.path), settings, secrets, archive._notify_followers)
        else:
            archive._writer = await InProcessExchangeWriter.open(store, settings, secrets, archive._notify_followers)
        return archive

    @classmethod
    def open_read_only(cls, store: Store, settings: ArchiveConfig) -> Self:
        """Return an archive for a process that only reads: it writes and deletes nothing."""
        archive = cls(store, settings.model_copy(update={"enabled": False, "keep": None}))
        archive._writes = False
        return archive

    @property
    def enabled(self) -> bool:
        """True if exchanges are archived at all."""
        return self._settings.enabled

    @property
    def lost_count(self) -> int:
        """Number of exchanges dropped because they could not be written."""
        return self._writer.lost_count

    @property
    def waiting_bytes(self) -> int:
        """Bytes waiting to be written."""
        return self._writer.waiting_bytes

    def enqueue(self, exchange: Exchange) -> None:
        """Queue an exchange for writing. Never waits, never raises; call it in the event loop's thread."""
        if self._settings.enabled:
            self._writer.enqueue(exchange)

    async def write_now(self, exchange: Exchange) -> None:
        """Write an exchange, and return when it is on disk. Raises `Unavailable` if it was not written."""
        if self._settings.enabled:
            await self._writer.write_now(exchange)

    @property
    def is_crowded(self) -> bool:
        """True if exchanges arrive faster than they are written, so that new requests should `wait_for_capacity`."""
        return self._writer.is_crowded

    async def wait_for_capacity(self) -> None:
        """Wait until the write queue is shorter, for two seconds at most."""
        await self._writer.wait_for_capacity()

    def ensure_writable(self) -> None:
        """Prepare for a new request. Raises `Unavailable` if durability is strict and writes fail."""
        if self._settings.enabled:
            self._writer.prepare_to_write()
        if self.strict:
            self._writer.ensure_writable()

    async def flush(self) -> None:
        """Wait until all queued exchanges are on disk. Raises `Unavailable`."""
        await self._writer.flush()

    async def wait_until_searchable(self) -> None:
        """Wait until all queued exchanges are in the full-text index. Raises `Unavailable`."""
        await self._writer.wait_until_searchable()

    async def close(self) -> None:
        """Write all queued exchanges and stop. Followers end."""
        self.stop_following()
        self._retention.cancel()
        await asyncio.gather(self._retention, return_exceptions=True)
        await self._writer.close()
        await asyncio.to_thread(self._threads.shutdown)

    async def get(self, tenant: str, exchange_id: str) -> Exchange:
        """Return an exchange with its content. Raises `NotFound`."""
        await self._wait_for_writes()
        stored = await self._exchanges.get(tenant, exchange_id)
        return await asyncio.get_running_loop().run_in_executor(self._threads, decode_archived_exchange, stored)

    async def write_exchange(self, tenant: str, exchange_id: str) -> tuple[ExchangeSummary, Sequence[bytes]]:
        """Return an exchange's summary, and its content as a JSON object in pieces.

        Raises `NotFound`, `WorkersBusy`.
        """
        await self._wait_for_writes()
        stored = await self._exchanges.get(tenant, exchange_id)
        size = stored.summary.request_size + stored.summary.response_size
        return stored.summary, await self._run_encoder(size, exchange_content_json, stored)

    async def iter_answers(
        self, tenant: str, key_id: str, exchange_ids: Sequence[str]
    ) -> AsyncIterator[ArchivedAnswer]:
        """Iterate over the complete answers to a key among these exchanges; others are skipped."""
        if exchange_ids:
            await self._wait_for_writes()
        loop = asyncio.get_running_loop()
        start = 0
        while start < len(exchange_ids):
            found, count = await self._exchanges.read_answers(tenant, key_id, exchange_ids[start:], _ANSWER_BATCH_BYTES)
            start += count
            for each in found:
                yield await loop.run_in_executor(self._threads, decode_archived_answer, each)

    async def list_exchanges(
        self, tenant: str, filters: ExchangeFilters = ALL_EXCHANGES, *, cursor: str | None = None, limit: int = 100
    ) -> tuple[Sequence[ExchangeSummary], str | None]:
        """Return exchanges, newest first, and the next page's cursor. Raises `InvalidInput` for an invalid query."""
        if cursor is None:
            await self._wait_for_writes()
        found = await self._exchanges.list(
            tenant, filters, match=_search_match(filters), before=cursor, limit=limit + 1
        )
        return found[:limit], found[limit - 1].id if len(found) > limit else None

    async def search(
        self, tenant: str, text: str, *, cursor: str | None = None, limit: int = 100
    ) -> tuple[Sequence[ExchangeSummary], str | None]:
        """Return exchanges that contain all the words, "phrases" and prefixes* of a query, newest first."""
        return await self.list_exchanges(tenant, ExchangeFilters(text=text), cursor=cursor, limit=limit)

    async def iter_exchanges(self, tenant: str, filters: ExchangeFilters = ALL_EXCHANGES) -> AsyncIterator[Exchange]:
        """Iterate over matching exchanges with their content, oldest first."""
        after = ""
        while True:
            page = await self._exchanges.list(tenant, filters, match=_search_match(filters), after=after, limit=_PAGE)
            for summary in page:
                after = summary.id
                yield await self.get(tenant, summary.id)
            if len(page) < _PAGE:
                return

    async def list_conversations(self, tenant: str, sandbox_id: str) -> Sequence[ConversationThread]:
        """Return the conversations of a sandbox: main first, then sub-agents, branches and side calls."""
        threads = []
        async for thread, sources in self._iter_conversations(tenant, sandbox_id):
            await asyncio.to_thread(load_conversation_messages, thread, sources)
            threads.append(thread)
        return threads

    async def write_conversations(
        self, tenant: str, sandbox_id: str
    ) -> Sequence[tuple[ConversationThread, Sequence[bytes]]]:
        """Return the conversations of a sandbox, and the content of each as a JSON object. Raises `WorkersBusy`."""
        return [
            (thread, await self._run_encoder(sources.size, conversation_content_json, thread, sources))
            async for thread, sources in self._iter_conversations(tenant, sandbox_id)
        ]

    async def _iter_conversations(
        self, tenant: str, sandbox_id: str
    ) -> AsyncIterator[tuple[ConversationThread, ConversationSources]]:
        await self._wait_for_writes()
        filters = ExchangeFilters(sandbox=sandbox_id)
        tree = await self._exchanges.read_turn_tree(tenant, filters, limit=MAX_CONVERSATION_EXCHANGES)
        threads = await asyncio.get_running_loop().run_in_executor(
            self._threads, group_exchanges_into_conversations, tree
        )
        known = {thread.id: thread for thread in threads}
        for thread in threads:
            try:
                yield thread, await read_conversation_sources(self._exchanges, tenant, thread, known)
            except NotFound:
                continue  # Deleted in the meantime.

    async def write_conversation(self, tenant: str, exchange_id: str) -> tuple[ConversationThread, Sequence[bytes]]:
        """Return the conversation of an exchange, found through its sandbox or key, and its content as a JSON object.

        Raises `NotFound`, `WorkersBusy`.
        """
        await self._wait_for_writes()
        summary = (await self._exchanges.get(tenant, exchange_id)).summary
        sender_filters = ExchangeFilters(sandbox=summary.sandbox, key=None if summary.sandbox else summary.key_id)
        for age in (_LOOK_BACK_SECONDS, 0.0):
            filters = replace(sender_filters, since=summary.at - age)
            tree = await self._exchanges.read_turn_tree(tenant, filters, limit=MAX_CONVERSATION_EXCHANGES)
            threads = await asyncio.get_running_loop().run_in_executor(
                self._threads, group_exchanges_into_conversations, tree
            )
            for thread in threads:
                if any(each.id == exchange_id for each in thread.exchanges):
                    known = {each.id: each for each in threads}
                    sources = await read_conversation_sources(self._exchanges, tenant, thread, known)
                    return thread, await self._run_encoder(sources.size, conversation_content_json, thread, sources)
        raise NotFound(f"There is no exchange {exchange_id[:80]!r}.")

    async def _wait_for_writes(self) -> None:
        """Wait briefly for pending writes, so that a reader sees earlier exchanges."""
        if self._writes and self._writer.waiting_bytes:
            try:
                await asyncio.wait_for(self._writer.flush(), _MAX_READ_WAIT)
            except (Unavailable, TimeoutError):
                pass

    def export_conversations(
        self,
        tenant: str,
        filters: ExchangeFilters = ALL_EXCHANGES,
        form: ExportForm = "openai",
        *,
        unanswered: bool = False,
    ) -> AsyncIterator[bytes]:
        """Export conversations as JSON lines, with messages in the form of OpenAI's chat API or Anthropic's.

        Unanswered conversations are omitted by default.
        """
        match = _search_match(filters)
        return export_conversation_lines(
            self._exchanges,
            tenant,
            filters,
            match,
            form,
            self._run_encoder,
            secrets=self._secrets,
            unanswered=unanswered,
        )

    async def _run_encoder(self, size: int, function: Callable[..., bytes], *arguments: Any) -> Sequence[bytes]:
        """Run a function that parses and writes so many bytes: of many, in a worker process."""
        if self._workers is None or size <= _LARGE_BYTES:
            return [await asyncio.to_thread(function, *arguments)]
        return await self._workers.call(function, *arguments)

    async def delete(self, tenant: str, exchange_id: str) -> None:
        """Delete an exchange and the messages that occur only in it. Raises `NotFound`."""
        stored = await self._exchanges.get(tenant, exchange_id)
        await self._writer.delete([stored.summary.number])

    async def delete_matching(self, tenant: str, filters: ExchangeFilters) -> int:
        """Delete all matching exchanges, and return their number."""
        removed = 0
        match = _search_match(filters)
        while numbers := await self._exchanges.list_numbers(tenant, filters, match, _DELETED_AT_ONCE):
            removed += await self._writer.delete(numbers)
        return removed

    async def follow_written(self, tenant: str, after: int | None = None) -> AsyncIterator[ExchangeSummary]:
        """Iterate over exchanges as they are written, from now on or after a number, until the archive closes."""
        cursor = after
        if cursor is None:
            _, cursor = await self._exchanges.written_after(0, tenant, 0)
        while True:
            written = self._written
            found, newest = await self._exchanges.written_after(cursor, tenant, _PAGE)
            for summary in found:
                yield summary
            if len(found) == _PAGE:
                cursor = found[-1].number
                continue
            cursor = max(cursor, newest)
            if not self._followers_active:
                return
            await written.wait()

    def stop_following(self) -> None:
        """Let followers finish with the exchanges written so far."""
        self._followers_active = False
        self._notify_followers()

    def _notify_followers(self) -> None:
        written, self._written = self._written, asyncio.Event()
        written.set()

    async def _delete_expired(self) -> None:
        keep = self._settings.keep
        while keep is not None:
            try:
                for tenant in await self._exchanges.list_tenants():
                    removed = await self.delete_matching(tenant, ExchangeFilters(until=time.time() - keep))
                    if removed:
                        log.info("deleted expired exchanges", tenant=tenant, count=removed)
            except Unavailable as error:
                log.warning("could not delete expired exchanges", reason=error.message)
            await asyncio.sleep(min(3600.0, max(0.05, keep / 20)))


def _search_match(filters: ExchangeFilters) -> str | None:
    return None if filters.text is None else build_full_text_query(filters.text)
