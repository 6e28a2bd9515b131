"""Load the messages of a conversation from the store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from paddock.llm.archive.compression import decode_pieces, decompress
from paddock.llm.archive.conversation_threads import ConversationThread, fill_messages, list_answer_sources
from paddock.llm.archive.exchange_encoding import decode_exchange, exchange_from_summary
from paddock.llm.archive.exchange_parsing import parse_answer
from paddock.llm.formats.neutral import ModelAnswer
from paddock.model.exchanges import ExchangeSummary
from paddock.store.model_exchanges.exchange_store import ExchangeStore

_BATCH = 200
"""Answers that are read at a time."""


async def load_thread_messages(
    exchanges: ExchangeStore, tenant: str, thread: ConversationThread, threads: Mapping[str, ConversationThread]
) -> None:
    """Load the messages of a conversation; `threads` are the related ones by id.

    Raises `NotFound` if it was deleted in the meantime.
    """
    assert thread.latest is not None
    stored = await exchanges.get(tenant, thread.latest.id)
    earlier = [each for each in list_answer_sources(thread, threads) if each.id < thread.latest.id]
    answers: list[ModelAnswer] = []
    for start in range(0, len(earlier), _BATCH):
        some = earlier[start : start + _BATCH]
        packed = await exchanges.responses(tenant, [each.number for each in some])
        answers += await asyncio.to_thread(_parse_answers, some, packed)
    await asyncio.to_thread(lambda: fill_messages(thread, decode_exchange(stored), answers))


def _parse_answers(summaries: Sequence[ExchangeSummary], packed: Mapping[int, bytes]) -> list[ModelAnswer]:
    found = []
    for summary in summaries:
        response = packed.get(summary.number)
        if response:
            answer = parse_answer(exchange_from_summary(summary, b"", decode_pieces(decompress(response))))
            if answer is not None:
                found.append(answer)
    return found
