"""Load the messages of a conversation from the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from paddock.llm.archive.compression import decode_archived_response, decompress
from paddock.llm.archive.conversation_threads import (
    ConversationThread,
    list_answer_exchanges,
    set_conversation_messages,
)
from paddock.llm.archive.exchange_encoding import decode_archived_exchange, exchange_from_summary
from paddock.llm.archive.exchange_parsing import parse_archived_answer
from paddock.llm.formats.neutral import ModelAnswer
from paddock.model.exchanges import ExchangeSummary, StoredExchange
from paddock.store.model_exchanges.exchange_store import ExchangeStore

_BATCH = 200
"""Answers that are read at a time."""
_MAX_ANSWER_BYTES = 64 * 2**20
"""Compressed bytes of earlier answers that are read for one conversation."""


@dataclass(slots=True)
class ConversationSources:
    """The stored exchanges that a conversation's messages are made from."""

    latest: StoredExchange
    earlier: Sequence[ExchangeSummary]
    answers: dict[int, bytes] = field(default_factory=dict)
    """Compressed answers by the number of their exchange."""

    @property
    def size(self) -> int:
        """Bytes of the requests and answers."""
        latest = self.latest.summary
        return latest.request_size + latest.response_size + sum(each.response_size for each in self.earlier)


async def read_conversation_sources(
    exchanges: ExchangeStore, tenant: str, thread: ConversationThread, threads: Mapping[str, ConversationThread]
) -> ConversationSources:
    """Read what a conversation's messages are made from; `threads` are the related ones by id.

    Raises `NotFound` if it was deleted in the meantime.
    """
    assert thread.latest is not None
    earlier = [each for each in list_answer_exchanges(thread, threads) if each.id < thread.latest.id]
    sources = ConversationSources(await exchanges.get(tenant, thread.latest.id), earlier)
    size = 0
    for start in range(0, len(earlier), _BATCH):
        found = await exchanges.read_responses(tenant, [each.number for each in earlier[start : start + _BATCH]])
        sources.answers |= found
        size += sum(map(len, found.values()))
        if size > _MAX_ANSWER_BYTES:
            thread.notes.append("the conversation is long: thoughts of later answers are missing")
            break
    return sources


def load_conversation_messages(thread: ConversationThread, sources: ConversationSources) -> None:
    """Set the messages, tools and notes of a conversation."""
    set_conversation_messages(
        thread, decode_archived_exchange(sources.latest), _parse_answers(sources.earlier, sources.answers)
    )


def _parse_answers(summaries: Sequence[ExchangeSummary], packed: Mapping[int, bytes]) -> list[ModelAnswer]:
    found = []
    for summary in summaries:
        response = packed.get(summary.number)
        if response:
            answer = parse_archived_answer(
                exchange_from_summary(summary, b"", decode_archived_response(decompress(response)))
            )
            if answer is not None:
                found.append(answer)
    return found
