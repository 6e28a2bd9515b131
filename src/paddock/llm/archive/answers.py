"""Reads an archived exchange: the request in neutral form, and the answer that its bytes add up to."""

from __future__ import annotations

from collections.abc import Iterable

from paddock.errors import PaddockError
from paddock.llm.collect import Collector
from paddock.llm.exchange import Exchange
from paddock.llm.formats.base import BrokenStream, Format
from paddock.llm.formats.registry import FORMATS
from paddock.llm.neutral import Answer, Finish, Finished, Request

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
