"""A whole answer as the events of a stream, and the other way round."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from paddock.llm.neutral import (
    Answer,
    Delta,
    Event,
    Finish,
    Finished,
    Part,
    PartEnded,
    PartStarted,
    Refusal,
    Signed,
    Started,
    Text,
    Thinking,
    ToolCall,
)


def answer_events(answer: Answer) -> list[Event]:
    """The events of a stream that says this answer."""
    events: list[Event] = [Started(answer.id, answer.model)]
    for index, part in enumerate(answer.parts):
        text, signature = "", None
        match part:
            case Text():
                events.append(PartStarted(index, replace(part, text="")))
                text = part.text
            case Refusal():
                events.append(PartStarted(index, Refusal("")))
                text = part.text
            case Thinking():
                events.append(PartStarted(index, Thinking(redacted=part.redacted)))
                text, signature = part.text, part.signature
            case ToolCall():
                # A call's seal comes with its start: formats that have no field for it tell it ahead.
                events.append(PartStarted(index, replace(part, arguments="")))
                text = part.arguments
            case _:
                events.append(PartStarted(index, part))
        if text:
            events.append(Delta(index, text))
        if signature is not None:
            events.append(Signed(index, signature))
        events.append(PartEnded(index))
    events.append(Finished(answer.finish, answer.usage, answer.stop_sequence))
    return events


class Collector:
    """Puts an answer together from the events of its stream."""

    def __init__(self) -> None:
        self.answer = Answer("", "", [], Finish.STOP)
        self.complete = False
        self._parts: dict[int, Part] = {}
        self._pieces: dict[int, list[str]] = {}

    def add(self, event: Event) -> None:
        match event:
            case Started():
                self.answer.id, self.answer.model = event.id, event.model
                self.answer.usage = event.usage
            case PartStarted():
                self._parts[event.index] = replace(event.part)
                self._pieces[event.index] = []
            case Delta():
                self._pieces[event.index].append(event.text)
            case Signed():
                part = self._parts[event.index]
                if isinstance(part, Thinking | ToolCall):
                    part.signature = event.signature
            case Finished():
                self.answer.finish = event.finish
                self.answer.stop_sequence = event.stop_sequence
                self.answer.usage = event.usage or self.answer.usage
                self.answer.parts = [self._whole(index) for index in sorted(self._parts)]
                self.complete = True

    def _whole(self, index: int) -> Part:
        part, more = self._parts[index], "".join(self._pieces[index])
        if isinstance(part, ToolCall):
            part.arguments += more
        elif isinstance(part, Text | Thinking | Refusal):
            part.text += more
        return part


def collect(events: Iterable[Event]) -> Answer | None:
    """The answer a stream's events add up to; `None` unless it finished."""
    collector = Collector()
    for event in events:
        collector.add(event)
    return collector.answer if collector.complete else None
