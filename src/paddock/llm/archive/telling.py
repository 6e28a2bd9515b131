"""Reads from the store what was said in a conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from paddock.llm.archive.answers import answer_of
from paddock.llm.archive.packing import to_pieces, unpack
from paddock.llm.archive.prepare import restore, to_exchange
from paddock.llm.archive.threads import Thread, sources, tell
from paddock.llm.neutral import Answer
from paddock.model.exchanges import Summary
from paddock.store.exchanges import ExchangeStore

_AT_ONCE = 200
"""Answers that are read at a time."""


async def tell_thread(exchanges: ExchangeStore, tenant: str, thread: Thread, threads: Mapping[str, Thread]) -> None:
    """Fill in what was said in one of some conversations, given by their ids.

    Raises `NotFound` if it was deleted meanwhile.
    """
    assert thread.latest is not None
    stored = await exchanges.get(tenant, thread.latest.id)
    earlier = [each for each in sources(thread, threads) if each.id < thread.latest.id]
    answers: list[Answer] = []
    for start in range(0, len(earlier), _AT_ONCE):
        some = earlier[start : start + _AT_ONCE]
        packed = await exchanges.responses(tenant, [each.number for each in some])
        answers += await asyncio.to_thread(_answers, some, packed)
    await asyncio.to_thread(lambda: tell(thread, restore(stored), answers))


def _answers(summaries: Sequence[Summary], packed: Mapping[int, bytes]) -> list[Answer]:
    found = []
    for summary in summaries:
        response = packed.get(summary.number)
        if response:
            answer = answer_of(to_exchange(summary, b"", to_pieces(unpack(response))))
            if answer is not None:
                found.append(answer)
    return found
