"""Reads an archived exchange: the request in neutral form, and the answer that its bytes add up to."""

from __future__ import annotations

from paddock.errors import PaddockError
from paddock.llm.collect import Collector
from paddock.llm.exchange import Exchange
from paddock.llm.formats.base import BrokenStream
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
        collector = Collector()
        reader = form.reader()
        try:
            for _, piece in exchange.response:
                for event in reader.feed(piece):
                    collector.add(event)
            for event in reader.close():
                collector.add(event)
        except BrokenStream:
            pass
        if not collector.complete:
            collector.add(Finished(Finish.STOP))
            collector.answer.notes.append(BROKE_OFF)
    except (BrokenStream, PaddockError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return collector.answer


def request_of(exchange: Exchange) -> Request | None:
    """What was asked; `None` for what is no request to generate, or makes no sense."""
    form = FORMATS.get(exchange.format)
    if form is None or exchange.operation not in ("generate", "count_tokens"):
        return None
    try:
        return form.read_request(exchange.request, model=exchange.model, stream=exchange.stream)
    except (PaddockError, ValueError, KeyError, TypeError, RecursionError):
        return None
