"""Parse an archived exchange: the request in neutral form, and the answer from its bytes."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from paddock.errors import PaddockError
from paddock.llm.exchange import Exchange
from paddock.llm.formats.answer_events import StreamedAnswerBuilder
from paddock.llm.formats.base import BrokenModelStream, WireFormat
from paddock.llm.formats.neutral import (
    AnswerStreamFinished,
    FinishReason,
    MessagePart,
    MessageRole,
    ModelAnswer,
    ModelMessage,
    ModelRefusal,
    ModelRequest,
    ModelText,
    ModelThinking,
    ModelToolCall,
)
from paddock.llm.formats.registry import FORMATS

ANSWER_CUT_NOTE = "the answer broke off"


def parse_archived_answer(exchange: Exchange) -> ModelAnswer | None:
    """Parse the answer; `None` for an error or invalid bytes. A partial answer is returned with a note.

    The bytes are those sent to the client, so they are in its format.
    """
    form = FORMATS.get(exchange.format)
    if form is None or exchange.operation != "generate" or not 200 <= exchange.status < 300 or not exchange.response:
        return None
    try:
        if not exchange.stream:
            return form.read_answer(b"".join([piece for _, piece in exchange.response]))
        pieces = [piece for _, piece in exchange.response]
        # Parsing all bytes at once is twice as fast; piece by piece keeps the part before an invalid piece.
        collector = _collect_answer(form, [b"".join(pieces)])
        if not collector.complete:
            collector = _collect_answer(form, pieces)
        if not collector.complete:
            collector.add(AnswerStreamFinished(FinishReason.STOP))
            collector.answer.notes.append(ANSWER_CUT_NOTE)
    except (BrokenModelStream, PaddockError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return collector.answer


def _collect_answer(form: WireFormat, pieces: Iterable[bytes]) -> StreamedAnswerBuilder:
    """Collect the answer of a stream up to its first invalid event."""
    collector, reader = StreamedAnswerBuilder(), form.new_stream_reader()
    try:
        for piece in pieces:
            for event in reader.feed(piece):
                collector.add(event)
        for event in reader.close():
            collector.add(event)
    except BrokenModelStream:
        pass
    return collector


def parse_archived_request(exchange: Exchange) -> ModelRequest | None:
    """Parse the request; `None` if it asks for no answer or is invalid."""
    form = FORMATS.get(exchange.format)
    if form is None or exchange.operation not in ("generate", "count_tokens"):
        return None
    try:
        return form.read_request(exchange.request, model=exchange.model, stream=exchange.stream)
    except (PaddockError, ValueError, KeyError, TypeError, RecursionError):
        return None


def restore_model_messages(messages: Sequence[ModelMessage], answers: Sequence[ModelAnswer]) -> list[ModelMessage]:
    """Replace the model's messages in a request with the original answers, given oldest first, where they match.

    Answers are matched by text and calls: clients send these back, but often drop thoughts.
    """
    known: dict[Hashable, list[list[MessagePart]]] = {}
    for answer in answers:
        calls: list[MessagePart] = [part for part in answer.parts if isinstance(part, ModelToolCall)]
        # A client may send the calls back without the text that came with them.
        for mark in dict.fromkeys([*_answer_keys(answer.parts), *_answer_keys(calls)]):
            known.setdefault(mark, []).append(answer.parts)
    restored: list[ModelMessage] = []
    for role, group in groupby(messages, lambda message: message.role):
        run = list(group)  # Some formats have one message per thought, text and call.
        parts = [part for message in run for part in message.parts]
        found = _match_answer(parts, known) if role is MessageRole.ASSISTANT else None
        if found is None:
            restored += run
            continue
        # The results that follow refer to the client's call ids, which it may have invented.
        ids = iter([part.id for part in parts if isinstance(part, ModelToolCall)])
        original = [replace(part, id=next(ids, part.id)) if isinstance(part, ModelToolCall) else part for part in found]
        restored.append(ModelMessage(MessageRole.ASSISTANT, original))
    return restored


def _match_answer(
    parts: Sequence[MessagePart], known: dict[Hashable, list[list[MessagePart]]]
) -> list[MessagePart] | None:
    """Return the matching answer; equal answers are used in turn."""
    if not all(isinstance(part, ModelText | ModelThinking | ModelToolCall | ModelRefusal) for part in parts):
        return None
    for mark in _answer_keys(parts):
        found = known.get(mark)
        if found:
            return found.pop(0) if len(found) > 1 else found[0]
    return None


def _answer_keys(parts: Sequence[MessagePart]) -> list[Hashable]:
    """Return the keys that identify an answer, the most reliable first."""
    text = "".join("".join(part.text.split()) for part in parts if isinstance(part, ModelText | ModelRefusal))
    calls = [part for part in parts if isinstance(part, ModelToolCall)]
    if not text and not calls:
        return []
    keys: list[Hashable] = [(text, *(call.id for call in calls))]
    if calls:
        # Some formats have no call ids, and some clients invent their own.
        keys.append((text, *((call.name, _canonical_arguments(call.arguments)) for call in calls)))
    return keys


def _canonical_arguments(text: str) -> str:
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):
        return text
