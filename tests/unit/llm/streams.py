"""Streams in tests: an answer as events, events as an answer, and bytes cut anywhere."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy

from paddock.llm.formats.base import StreamReader, StreamWriter
from paddock.llm.neutral import (
    Answer,
    Delta,
    Event,
    Failed,
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


def events_of(answer: Answer) -> list[Event]:
    """The answer told in pieces of a few characters."""
    events: list[Event] = [Started(answer.id, answer.model)]
    for index, part in enumerate(answer.parts):
        begun, text = deepcopy(part), ""
        if isinstance(begun, Text | Refusal):
            text, begun.text = begun.text, ""
        elif isinstance(begun, Thinking):
            text, begun.text, begun.signature = begun.text, "", None
        elif isinstance(begun, ToolCall):
            text, begun.arguments = begun.arguments, ""
        events.append(PartStarted(index, begun))
        events += [Delta(index, text[start : start + 5]) for start in range(0, len(text), 5)]
        if isinstance(part, Thinking) and part.signature:
            events.append(Signed(index, part.signature))
        events.append(PartEnded(index))
    return [*events, Finished(answer.finish, answer.usage, answer.stop_sequence)]


def answer_of(events: Iterable[Event]) -> Answer | Failed:
    """The answer that the events tell. Fails unless they keep to the contract."""
    parts: dict[int, Part] = {}
    open_parts: set[int] = set()
    started: Started | None = None
    finished: Finished | None = None
    for event in events:
        assert finished is None
        match event:
            case Started():
                assert started is None
                started = event
            case PartStarted():
                assert event.index == len(parts)
                assert all(isinstance(parts[index], ToolCall) for index in open_parts)
                parts[event.index] = deepcopy(event.part)
                open_parts.add(event.index)
            case Delta():
                part = parts[event.index]
                assert event.index in open_parts
                if isinstance(part, ToolCall):
                    part.arguments += event.text
                else:
                    assert isinstance(part, Text | Thinking | Refusal)
                    part.text += event.text
            case Signed():
                part = parts[event.index]
                assert isinstance(part, Thinking | ToolCall)
                part.signature = event.signature
            case PartEnded():
                open_parts.remove(event.index)
            case Finished():
                finished = event
            case Failed():
                return event
    assert started is not None
    assert finished is not None
    assert not open_parts
    return Answer(
        started.id, started.model, list(parts.values()), finished.finish, finished.stop_sequence, finished.usage
    )


def written(writer: StreamWriter, events: Iterable[Event]) -> bytes:
    return b"".join(writer.write(event) + writer.ping() * (index == 1) for index, event in enumerate(events))


def read(reader: StreamReader, data: bytes, cuts: Iterable[int] = ()) -> list[Event]:
    events: list[Event] = []
    start = 0
    for cut in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
        events += reader.feed(data[start:cut])
        start = cut
    return events + reader.close()
