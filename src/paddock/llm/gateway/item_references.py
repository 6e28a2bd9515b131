"""Resolve `item_reference` inputs of the Responses API to the items this proxy wrote.

Clients that expect the provider to store answers send references in place of earlier items. Item ids written by the
proxy contain the exchange id, so recent answers and the archive have the items. Other references are left alone:
OpenAI resolves its own. Long requests and long answers are read by a worker process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from paddock.config.llm import ArchiveConfig
from paddock.errors import TooLarge
from paddock.llm.archive.exchange_encoding import ArchivedAnswer
from paddock.llm.exchange import ModelCaller
from paddock.llm.formats.openai_responses.item_ids import exchange_start_time
from paddock.llm.formats.openai_responses.item_reference_bodies import (
    MAX_ADDED_ITEM_BYTES,
    find_answer_items,
    referenced_item_ids,
    replace_item_references,
    unresolved_item_reference_error,
)
from paddock.llm.gateway.recent_answers import RecentAnswers
from paddock.llm.offload.worker_pool import OffloadWorkerPool
from paddock.llm.offload.worker_tasks import MAX_TRANSLATE_IN_PROCESS, is_large_body

_REDACTED = "the archive removed a secret from it, and it is no longer in memory"
_DISABLED = "the archive is off (llm.archive.enabled), and the item is no longer in memory"
_EXPIRED = "it is older than llm.archive.keep, and no longer in memory"
_UNKNOWN = "no item of that id is in the archive for this key"


class ArchivedAnswerReader(Protocol):
    """Reads archived answers."""

    def iter_answers(self, tenant: str, key_id: str, exchange_ids: Sequence[str]) -> AsyncIterator[ArchivedAnswer]: ...


class ItemReferenceResolver:
    """Replaces item references with the items of the key's own answers."""

    def __init__(
        self, settings: ArchiveConfig, archive: ArchivedAnswerReader, recent: RecentAnswers, workers: OffloadWorkerPool
    ) -> None:
        self._settings = settings
        self._archive = archive
        self._recent = recent
        self._workers = workers

    async def resolve(self, body: bytes, caller: ModelCaller, *, provider_resolves: bool) -> bytes:
        """Replace references to items of the caller's own exchanges, and return the body.

        Raises `TooLarge` for too many references, and for items that are too long together, and `InvalidInput` for an
        item that is gone, unless the provider may resolve it.
        """
        large = is_large_body(body)
        wanted = (
            (await self._workers.run_task("referenced_items", None, body))[0] if large else referenced_item_ids(body)
        )
        items, causes = await self._collect_items(wanted, caller)
        if not provider_resolves:
            for exchange_id, identifiers in wanted.items():
                for identifier in identifiers:
                    if identifier not in items:
                        raise unresolved_item_reference_error(
                            identifier, causes.get(exchange_id) or self._cause(exchange_id)
                        )
        if not items:
            return body
        if large or sum(map(len, items.values())) > MAX_TRANSLATE_IN_PROCESS:
            return (await self._workers.run_task("replace_references", items, body))[1]
        return replace_item_references(items, body)

    async def _collect_items(
        self, wanted: dict[str, list[str]], caller: ModelCaller
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        """Return the items found by id, and why items of some exchanges are missing."""
        items: dict[str, bytes] = {}
        causes: dict[str, str] = {}
        missing: list[str] = []
        size = 0
        for exchange_id, identifiers in wanted.items():
            recent = self._recent.find(caller.key_id, exchange_id)
            if recent is None:
                missing.append(exchange_id)
                continue
            size += await self._add_items(items, identifiers, recent.stream, recent.body, size)
            await asyncio.sleep(0)  # Parsing thousands of answers at once would block other clients.
        async for answer in self._archive.iter_answers(caller.tenant, caller.key_id, missing):
            if answer.redacted:
                causes[answer.exchange_id] = _REDACTED
                continue
            size += await self._add_items(items, wanted[answer.exchange_id], answer.stream, answer.body, size)
        return items, causes

    async def _add_items(
        self, items: dict[str, bytes], identifiers: list[str], stream: bool, answer: bytes, size: int
    ) -> int:
        """Add the items of an answer, and return their bytes. Raises `TooLarge` if all are too long together."""
        if is_large_body(answer):
            found: dict[str, bytes] = (await self._workers.run_task("find_items", (identifiers, stream), answer))[0]
        else:
            found = find_answer_items(identifiers, stream, answer)
        added = sum(map(len, found.values()))
        if size + added > MAX_ADDED_ITEM_BYTES:
            raise TooLarge(f"the referenced items have more than {MAX_ADDED_ITEM_BYTES} bytes; send fewer of them")
        items |= found
        return added

    def _cause(self, exchange_id: str) -> str:
        if not self._settings.enabled:
            return _DISABLED
        keep = self._settings.keep
        return _EXPIRED if keep is not None and exchange_start_time(exchange_id) < time.time() - keep else _UNKNOWN
