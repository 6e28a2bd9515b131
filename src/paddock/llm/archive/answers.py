"""Reads an archived exchange: the request in neutral form, and the answer that its bytes add up to."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from paddock.errors import PaddockError
from paddock.llm.collect import Collector
from paddock.llm.exchange import Exchange
from paddock.llm.formats.base import BrokenStream, Format
from paddock.llm.formats.registry import FORMATS
from paddock.llm.neutral import (
    Answer,
    Finish,
    Finished,
    Message,
    Part,
    Refusal,
    Request,
    Role,
    Text,
    Thinking,
    ToolCall,
)

BROKE_OFF = "the answer broke off"


def answer_of(exchange: Exchange) -> Answer | None:
    """What was answered; `None` for an error or nonsense. One that broke off is given as far as it went, with a note.

    The bytes are those the client got, so they are in its format.
    """
    form = FORMATS.get(exchange.format)
    if form is None or exchange.operation != "generate" or not 200 <= exchange.status < 300 or not exchange.response:
        return None
    try:
        if not exchange.stream:
            return form.read_answer(b"".join([piece for _, piece in exchange.response]))
        pieces = [piece for _, piece in exchange.response]
        # All at once takes half the time, but when some of it makes no sense, what came before counts.
        collector = _collected(form, [b"".join(pieces)])
        if not collector.complete:
            collector = _collected(form, pieces)
        if not collector.complete:
            collector.add(Finished(Finish.STOP))
            collector.answer.notes.append(BROKE_OFF)
    except (BrokenStream, PaddockError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return collector.answer


def _collected(form: Format, pieces: Iterable[bytes]) -> Collector:
    """What a stream adds up to, as far as it can be read."""
    collector, reader = Collector(), form.reader()
    try:
        for piece in pieces:
            for event in reader.feed(piece):
                collector.add(event)
        for event in reader.close():
            collector.add(event)
    except BrokenStream:
        pass
    return collector


def request_of(exchange: Exchange) -> Request | None:
    """What was asked; `None` for what is no request to generate, or makes no sense."""
    form = FORMATS.get(exchange.format)
    if form is None or exchange.operation not in ("generate", "count_tokens"):
        return None
    try:
        return form.read_request(exchange.request, model=exchange.model, stream=exchange.stream)
    except (PaddockError, ValueError, KeyError, TypeError, RecursionError):
        return None


def as_answered(messages: Sequence[Message], answers: Sequence[Answer]) -> list[Message]:
    """Messages of a request, with the model's as the model said them where one of the answers, oldest first, is known.

    They are known by their text and calls: clients send those back, but often not what was thought.
    """
    known: dict[Hashable, list[list[Part]]] = {}
    for answer in answers:
        calls: list[Part] = [part for part in answer.parts if isinstance(part, ToolCall)]
        # A client may send the calls back and not what was said with them.
        for mark in dict.fromkeys([*_marks(answer.parts), *_marks(calls)]):
            known.setdefault(mark, []).append(answer.parts)
    told: list[Message] = []
    for role, group in groupby(messages, lambda message: message.role):
        run = list(group)  # Some formats have one message for each thought, text and call.
        parts = [part for message in run for part in message.parts]
        found = _taken(parts, known) if role is Role.ASSISTANT else None
        if found is None:
            told += run
            continue
        # Results that follow go by the client's ids, which it may have made up.
        ids = iter([part.id for part in parts if isinstance(part, ToolCall)])
        said = [replace(part, id=next(ids, part.id)) if isinstance(part, ToolCall) else part for part in found]
        told.append(Message(Role.ASSISTANT, said))
    return told


def _taken(parts: Sequence[Part], known: dict[Hashable, list[list[Part]]]) -> list[Part] | None:
    """What was answered, once for each time that it was."""
    if not all(isinstance(part, Text | Thinking | ToolCall | Refusal) for part in parts):
        return None
    for mark in _marks(parts):
        found = known.get(mark)
        if found:
            return found.pop(0) if len(found) > 1 else found[0]
    return None


def _marks(parts: Sequence[Part]) -> list[Hashable]:
    """What an answer is known by, the surest first."""
    text = "".join("".join(part.text.split()) for part in parts if isinstance(part, Text | Refusal))
    calls = [part for part in parts if isinstance(part, ToolCall)]
    if not text and not calls:
        return []
    marks: list[Hashable] = [(text, *(call.id for call in calls))]
    if calls:
        # Not all formats have ids, and some clients make up their own.
        marks.append((text, *((call.name, _arguments(call.arguments)) for call in calls)))
    return marks


def _arguments(text: str) -> str:
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):
        return text
