"""Recent answers in the Responses format, kept in memory so that requests can refer to their items at once.

The archive may be off, may not have written an answer yet, and redacts secrets; none of this affects these answers.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass

from paddock.llm.exchange import Exchange
from paddock.llm.formats.openai_responses.item_ids import find_exchange_id_in_answer
from paddock.llm.formats.openai_responses.item_reference_bodies import find_completed_event
from paddock.llm.formats.openai_responses.tool_conversion import RESPONSES_FORMAT_NAME
from paddock.llm.request_kind import GENERATE_OPERATION

MAX_BYTES = 64 * 2**20
MAX_KEY_BYTES = 16 * 2**20
"""Bytes that the answers to one key may take, so that a busy key cannot evict the answers of all others."""
MAX_RECENT_ANSWERS = 20_000
_OVERHEAD = 256
"""Bytes an answer counts in addition to its content."""
_NOT_STORED = re.compile(rb'"store"\s*:\s*false')
"""In the request of a client that sends items instead of references. Quotes inside JSON strings are escaped."""
_RECORDED_KINDS = ("script", "replay")


@dataclass(frozen=True, slots=True)
class RecentAnswer:
    """An answer with its items: a whole body, or the last event of a stream."""

    stream: bool
    body: bytes

    @property
    def size(self) -> int:
        return len(self.body) + _OVERHEAD


class RecentAnswers:
    """The latest answers by key, bounded in bytes and number. The least recently used key loses its oldest first."""

    def __init__(
        self, *, max_bytes: int = MAX_BYTES, max_key_bytes: int = MAX_KEY_BYTES, max_answers: int = MAX_RECENT_ANSWERS
    ) -> None:
        self._max_bytes = max_bytes
        self._max_key_bytes = max_key_bytes
        self._max_answers = max_answers
        self._by_key: OrderedDict[str, OrderedDict[str, RecentAnswer]] = OrderedDict()
        self._key_bytes: dict[str, int] = {}
        self._bytes = 0
        self._count = 0

    def add(self, exchange: Exchange) -> None:
        """Keep the answer of a successful exchange if a later request may refer to its items."""
        if (
            exchange.format != RESPONSES_FORMAT_NAME
            or exchange.operation != GENERATE_OPERATION
            or exchange.status != 200
        ):
            return
        if exchange.provider_format == RESPONSES_FORMAT_NAME and exchange.provider_kind not in _RECORDED_KINDS:
            return  # The provider wrote the items.
        if _NOT_STORED.search(exchange.request):
            return
        pieces = [piece for _, piece in exchange.response]
        body = find_completed_event(pieces) if exchange.stream else b"".join(pieces)
        # A recording has the item ids of the exchange that was recorded.
        exchange_id = find_exchange_id_in_answer(body)
        if exchange_id is not None:
            self._put(exchange.caller.key_id, exchange_id, RecentAnswer(exchange.stream, body))

    def find(self, key_id: str, exchange_id: str) -> RecentAnswer | None:
        """Return the answer with item ids of this exchange, if it was sent to the same key."""
        answers = self._by_key.get(key_id)
        found = answers.get(exchange_id) if answers is not None else None
        if found is not None and answers is not None:
            answers.move_to_end(exchange_id)
            self._by_key.move_to_end(key_id)
        return found

    def _put(self, key_id: str, exchange_id: str, answer: RecentAnswer) -> None:
        if answer.size > self._max_key_bytes:
            return
        answers = self._by_key.setdefault(key_id, OrderedDict())
        self._by_key.move_to_end(key_id)
        if exchange_id in answers:
            self._remove(key_id, exchange_id)
            answers = self._by_key.setdefault(key_id, OrderedDict())
        answers[exchange_id] = answer
        self._bytes += answer.size
        self._count += 1
        self._key_bytes[key_id] = self._key_bytes.get(key_id, 0) + answer.size
        while self._key_bytes[key_id] > self._max_key_bytes:
            self._remove_oldest(key_id)
        while self._bytes > self._max_bytes or self._count > self._max_answers:
            self._remove_oldest(next(iter(self._by_key)))

    def _remove_oldest(self, key_id: str) -> None:
        self._remove(key_id, next(iter(self._by_key[key_id])))

    def _remove(self, key_id: str, exchange_id: str) -> None:
        answers = self._by_key[key_id]
        removed = answers.pop(exchange_id)
        self._bytes -= removed.size
        self._count -= 1
        self._key_bytes[key_id] -= removed.size
        if not answers:
            del self._by_key[key_id], self._key_bytes[key_id]
