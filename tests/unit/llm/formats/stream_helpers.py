"""Stream helpers: convert answers to events and back, and split bytes at any position."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy

from paddock.llm.formats.base import ModelStreamReader, ModelStreamWriter
from paddock.llm.formats.neutral import (
    AnswerPartDelta,
    AnswerPartEnded,
    AnswerPartSigned,
    AnswerPartStarted,
    AnswerStreamFailed,
    AnswerStreamFinished,
    AnswerStreamStarted,
    MessagePart,
    ModelAnswer,
    ModelRefusal,
    ModelText,
    ModelThinking,
    ModelToolCall,
    StreamEvent,
)


def answer_to_small_events(answer: ModelAnswer) -> list[StreamEvent]:
    """Return the stream events of an answer, with deltas of a few characters."""
    events: list[StreamEvent] = [AnswerStreamStarted(answer.id, answer.model)]
    for index, part in enumerate(answer.parts):
        started_part, text = deepcopy(part), ""
        if isinstance(started_part, ModelText | ModelRefusal):
            text, started_part.text = started_part.text, ""
        elif isinstance(started_part, ModelThinking):
            text, started_part.text, started_part.signature = started_part.text, "", None
        elif isinstance(started_part, ModelToolCall):
            text, started_part.arguments = started_part.arguments, ""
        events.append(AnswerPartStarted(index, started_part))
        events += [AnswerPartDelta(index, text[start : start + 5]) for start in range(0, len(text), 5)]
        if isinstance(part, ModelThinking) and part.signature:
            events.append(AnswerPartSigned(index, part.signature))
        events.append(AnswerPartEnded(index))
    return [*events, AnswerStreamFinished(answer.finish, answer.usage, answer.stop_sequence)]


def answer_from_valid_events(events: Iterable[StreamEvent]) -> ModelAnswer | AnswerStreamFailed:
    """Join stream events to an answer. Fails unless they keep to the contract."""
    parts: dict[int, MessagePart] = {}
    open_parts: set[int] = set()
    started: AnswerStreamStarted | None = None
    finished: AnswerStreamFinished | None = None
    for event in events:
        assert finished is None
        match event:
            case AnswerStreamStarted():
                assert started is None
                started = event
            case AnswerPartStarted():
                assert event.index == len(parts)
                assert all(isinstance(parts[index], ModelToolCall) for index in open_parts)
                parts[event.index] = deepcopy(event.part)
                open_parts.add(event.index)
            case AnswerPartDelta():
                part = parts[event.index]
                assert event.index in open_parts
                if isinstance(part, ModelToolCall):
                    part.arguments += event.text
                else:
                    assert isinstance(part, ModelText | ModelThinking | ModelRefusal)
                    part.text += event.text
            case AnswerPartSigned():
                part = parts[event.index]
                assert isinstance(part, ModelThinking | ModelToolCall)
                part.signature = event.signature
            case AnswerPartEnded():
                open_parts.remove(event.index)
            case AnswerStreamFinished():
                finished = event
            case AnswerStreamFailed():
                return event
    assert started is not None
    assert finished is not None
    assert not open_parts
    return ModelAnswer(
        started.id, started.model, list(parts.values()), finished.finish, finished.stop_sequence, finished.usage
    )


def write_events(writer: ModelStreamWriter, events: Iterable[StreamEvent]) -> bytes:
    return b"".join(writer.write(event) + writer.ping() * (index == 1) for index, event in enumerate(events))


def read_in_pieces(reader: ModelStreamReader, data: bytes, cuts: Iterable[int] = ()) -> list[StreamEvent]:
    events: list[StreamEvent] = []
    start = 0
    for cut in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
        events += reader.feed(data[start:cut])
        start = cut
    return events + reader.close()
