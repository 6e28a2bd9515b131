"""Convert a complete answer into stream events, and stream events into an answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from paddock.llm.formats.neutral import (
    AnswerPartDelta,
    AnswerPartEnded,
    AnswerPartSigned,
    AnswerPartStarted,
    AnswerStreamFinished,
    AnswerStreamStarted,
    FinishReason,
    MessagePart,
    ModelAnswer,
    ModelRefusal,
    ModelText,
    ModelThinking,
    ModelToolCall,
    StreamEvent,
)


def stream_events_from_answer(answer: ModelAnswer) -> list[StreamEvent]:
    """Return the events of a stream with this answer."""
    events: list[StreamEvent] = [AnswerStreamStarted(answer.id, answer.model)]
    for index, part in enumerate(answer.parts):
        text, signature = "", None
        match part:
            case ModelText():
                events.append(AnswerPartStarted(index, replace(part, text="")))
                text = part.text
            case ModelRefusal():
                events.append(AnswerPartStarted(index, ModelRefusal("")))
                text = part.text
            case ModelThinking():
                events.append(AnswerPartStarted(index, ModelThinking(redacted=part.redacted)))
                text, signature = part.text, part.signature
            case ModelToolCall():
                # A call's signature comes with its start: formats without a field for it send it in advance.
                events.append(AnswerPartStarted(index, replace(part, arguments="")))
                text = part.arguments
            case _:
                events.append(AnswerPartStarted(index, part))
        if text:
            events.append(AnswerPartDelta(index, text))
        if signature is not None:
            events.append(AnswerPartSigned(index, signature))
        events.append(AnswerPartEnded(index))
    events.append(AnswerStreamFinished(answer.finish, answer.usage, answer.stop_sequence))
    return events


class StreamedAnswerBuilder:
    """Assembles an answer from the events of its stream."""

    def __init__(self) -> None:
        self.answer = ModelAnswer("", "", [], FinishReason.STOP)
        self.complete = False
        self._parts: dict[int, MessagePart] = {}
        self._pieces: dict[int, list[str]] = {}

    def add(self, event: StreamEvent) -> None:
        match event:
            case AnswerStreamStarted():
                self.answer.id, self.answer.model = event.id, event.model
                self.answer.usage = event.usage
            case AnswerPartStarted():
                self._parts[event.index] = replace(event.part)
                self._pieces[event.index] = []
            case AnswerPartDelta():
                self._pieces[event.index].append(event.text)
            case AnswerPartSigned():
                part = self._parts[event.index]
                if isinstance(part, ModelThinking | ModelToolCall):
                    part.signature = event.signature
            case AnswerStreamFinished():
                self.answer.finish = event.finish
                self.answer.stop_sequence = event.stop_sequence
                self.answer.usage = event.usage or self.answer.usage
                self.answer.parts = [self._finish_part(index) for index in sorted(self._parts)]
                self.complete = True

    def _finish_part(self, index: int) -> MessagePart:
        part, more = self._parts[index], "".join(self._pieces[index])
        if isinstance(part, ModelToolCall):
            part.arguments += more
        elif isinstance(part, ModelText | ModelThinking | ModelRefusal):
            part.text += more
        return part


def answer_from_stream_events(events: Iterable[StreamEvent]) -> ModelAnswer | None:
    """Return the answer that a stream's events add up to; `None` if the stream did not finish."""
    collector = StreamedAnswerBuilder()
    for event in events:
        collector.add(event)
    return collector.answer if collector.complete else None
