"""Resolve `item_reference` inputs of the Responses API to the items this proxy wrote.

Clients that expect the provider to store answers send references in place of earlier items. Item ids written by the
proxy contain the exchange id, so the archive has the items. Other references are left alone: OpenAI resolves its own.
Long requests and long answers are read by a worker process.
"""

from __future__ import annotations

from typing import Protocol

from paddock.errors import PaddockError, TooLarge
from paddock.llm.exchange import Exchange, ExchangeOutcome, ModelCaller
from paddock.llm.formats.openai_responses.item_reference_bodies import (
    MAX_ADDED,
    find_items,
    referenced_items,
    replace_references,
)
from paddock.llm.offload.worker_pool import WorkerPool
from paddock.llm.offload.worker_tasks import MAX_TRANSLATE_IN_PROCESS, is_large_body


class ExchangeReader(Protocol):
    """Reads archived exchanges."""

    async def get(self, tenant: str, exchange_id: str) -> Exchange: ...


async def resolve_references(body: bytes, caller: ModelCaller, archive: ExchangeReader, workers: WorkerPool) -> bytes:
    """Replace references to items of the caller's own exchanges, and return the body.

    Raises `TooLarge` for a request of too many values, and for items that are too long together.
    """
    large = is_large_body(body)
    wanted = (await workers.run_task("referenced_items", None, body))[0] if large else referenced_items(body)
    items: dict[str, bytes] = {}
    size = 0
    for exchange_id, identifiers in wanted.items():
        items |= await _answered_items(exchange_id, identifiers, caller, archive, workers)
        size = sum(map(len, items.values()))
        if size > MAX_ADDED:
            raise TooLarge(f"the referenced items have more than {MAX_ADDED} bytes; send fewer of them")
    if not items:
        return body
    if large or size > MAX_TRANSLATE_IN_PROCESS:
        return (await workers.run_task("replace_references", items, body))[1]
    return replace_references(items, body)


async def _answered_items(
    exchange_id: str, identifiers: list[str], caller: ModelCaller, archive: ExchangeReader, workers: WorkerPool
) -> dict[str, bytes]:
    """Return items that an exchange answered with, if the caller's own key made the request."""
    try:
        exchange = await archive.get(caller.tenant, exchange_id)
    except PaddockError:
        return {}
    if exchange.caller.key_id != caller.key_id or exchange.outcome is not ExchangeOutcome.OK:
        return {}
    answer = b"".join(piece for _, piece in exchange.response)
    if is_large_body(answer):
        found: dict[str, bytes] = (await workers.run_task("find_items", (identifiers, exchange.stream), answer))[0]
        return found
    return find_items(identifiers, exchange.stream, answer)
