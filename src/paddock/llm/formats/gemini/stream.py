"""Gemini's streams: server-sent events with `alt=sse`, one JSON array without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paddock.llm.formats.base import BrokenStream, StreamReader, StreamWriter
from paddock.llm.formats.failures import STATUSES
from paddock.llm.formats.fields import Fields, answer_fields, to_bytes
from paddock.llm.formats.gemini.answer import (
    MISTAKES,
    CallIds,
    answer_object,
    blocked,
    continues,
    failure_object,
    first_candidate,
    read_failure,
    read_finish,
    read_part,
    read_usage,
)
from paddock.llm.formats.gemini.parts import camel, write_answer_part
from paddock.llm.formats.sse import MAX_EVENT, EventReader, event_bytes
from paddock.llm.neutral import (
    Delta,
    Event,
    Failed,
    Failure,
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
    Usage,
)


class _ArrayReader:
    """Finds the objects of a JSON array as its bytes arrive."""

    def __init__(self) -> None:
        self._object = bytearray()
        self._depth = 0
        self._in_text = False
        self._escaped = False

    def feed(self, data: bytes) -> list[bytes]:
        found: list[bytes] = []
        start = 0 if self._depth else -1
        for position, byte in enumerate(data):
            if self._in_text:
                if self._escaped:
                    self._escaped = False
                elif byte == 0x5C:
                    self._escaped = True
                elif byte == 0x22:
                    self._in_text = False
            elif byte == 0x22:
                self._in_text = True
            elif byte == 0x7B:
                if self._depth == 0:
                    start = position
                self._depth += 1
            elif byte == 0x7D and self._depth:
                self._depth -= 1
                if self._depth == 0:
                    found.append(bytes(self._object) + data[start : position + 1])
                    self._object.clear()
                    start = -1
        if start >= 0:
            self._object += data[start:]
        if len(self._object) > MAX_EVENT:
            raise BrokenStream(f"an object of the stream is larger than {MAX_EVENT} bytes")
        return found


class GeminiReader(StreamReader):
    def __init__(self) -> None:
        self._events = EventReader()
        self._array: _ArrayReader | None = None
        self._is_known = False
        self._ids: CallIds | None = None
        self._next = 0
        self._open: Text | Thinking | None = None
        self._called = False
        self._usage: Usage | None = None
        self._reason: str | None = None
        self._ended = False

    def feed(self, data: bytes) -> list[Event]:
        if not self._is_known:
            data = data.lstrip()
            if not data:
                return []
            self._is_known = True
            # An array of answers, or, as for an error, one answer alone.
            self._array = _ArrayReader() if data[:1] in (b"[", b"{") else None
        pieces: list[bytes | str] = (
            [*self._array.feed(data)] if self._array else [found.data for found in self._events.feed(data)]
        )
        return [event for piece in pieces for event in self._read(piece)]

    def close(self) -> list[Event]:
        events = [event for found in self._events.close() for event in self._read(found.data)]
        if not self._ended and self._reason is not None:
            events += self._finish()
        if not self._ended:
            raise BrokenStream("the stream ended without a finishReason")
        return events

    def _read(self, data: bytes | str) -> list[Event]:
        if self._ended or data == "[DONE]":
            return []
        fields = answer_fields(data)
        fields = Fields(camel(fields.value), "", BrokenStream)
        if "error" in fields:
            return [self._failed(data)]
        events: list[Event] = []
        if self._ids is None:
            answer_id = fields.text_or("responseId") or ""
            self._ids = CallIds(answer_id)
            events.append(Started(answer_id, fields.text_or("modelVersion") or ""))
        usage = fields.object_or("usageMetadata")
        if usage is not None:
            self._usage = read_usage(usage)
        candidate = first_candidate(fields)
        if candidate is None:
            if blocked(fields) is not None:
                self._reason = "SAFETY"
                events += self._finish()
            return events
        content = candidate.object_or("content")
        for part in content.objects("parts") if content is not None else ():
            for read in read_part(part, self._ids, []):
                events += self._add(read)
        self._reason = candidate.text_or("finishReason") or self._reason
        if self._reason in MISTAKES:
            self._ended = True
            detail = candidate.text_or("finishMessage") or "the model made a mistake"
            events.append(Failed(Failure(502, f"{self._reason}: {detail}", code=self._reason)))
        elif self._reason is not None and usage is not None:
            events += self._finish()
        return events

    def _failed(self, data: bytes | str) -> Failed:
        self._ended = True
        failure = read_failure(500, data if isinstance(data, bytes) else data.encode(errors="replace"))
        failure.status = STATUSES.get(failure.kind, 500)
        return Failed(failure)

    def _add(self, part: Part) -> list[Event]:
        events: list[Event] = []
        if isinstance(part, Text) and isinstance(self._open, Text):
            return [Delta(self._next - 1, part.text)]
        if isinstance(part, Thinking) and isinstance(self._open, Thinking) and continues(self._open, part):
            self._open.signature = part.signature
            if part.text:
                events.append(Delta(self._next - 1, part.text))
            if part.signature:
                events.append(Signed(self._next - 1, part.signature))
            return events
        events += self._close_part()
        index, self._next = self._next, self._next + 1
        if isinstance(part, Text):
            self._open = part
            return [*events, PartStarted(index, Text("")), Delta(index, part.text)]
        if isinstance(part, Thinking):
            self._open = part
            events.append(PartStarted(index, Thinking()))
            if part.text:
                events.append(Delta(index, part.text))
            if part.signature:
                events.append(Signed(index, part.signature))
            return events
        if isinstance(part, ToolCall):
            self._called = True
            begun = ToolCall(part.id, part.name, "", part.signature)
            return [*events, PartStarted(index, begun), Delta(index, part.arguments), PartEnded(index)]
        return [*events, PartStarted(index, part), PartEnded(index)]

    def _close_part(self) -> list[Event]:
        if self._open is None:
            return []
        self._open = None
        return [PartEnded(self._next - 1)]

    def _finish(self) -> list[Event]:
        self._ended = True
        return [*self._close_part(), Finished(read_finish(self._reason, self._called), self._usage)]


@dataclass(slots=True)
class _Written:
    part: Part
    arguments: str = ""


class GeminiWriter(StreamWriter):
    """Calls are held back until they are whole: this format has no pieces of them."""

    def __init__(self, *, as_array: bool = False) -> None:
        self._as_array = as_array
        self._is_first = True
        self._id = ""
        self._model = ""
        self._parts: dict[int, _Written] = {}

    def ping(self) -> bytes:
        return b"\n" if self._as_array else super().ping()

    def write(self, event: Event) -> bytes:
        match event:
            case Started():
                self._id, self._model = event.id, event.model
                return b""
            case PartStarted():
                return self._start(event)
            case Delta():
                return self._more(event)
            case Signed():
                return self._sign(event)
            case PartEnded():
                return self._end(event.index)
            case Finished():
                rest = b"".join(self._end(index) for index in list(self._parts))
                last = answer_object(self._id, self._model, [{"text": ""}], event.finish, event.usage or Usage())
                return rest + self._piece(last) + (b"]" if self._as_array else b"")
            case Failed():
                return self._piece(failure_object(event.failure)) + (b"]" if self._as_array else b"")

    def _start(self, event: PartStarted) -> bytes:
        part = event.part
        self._parts[event.index] = _Written(part)
        if isinstance(part, ToolCall):
            self._parts[event.index].arguments = part.arguments
            return b""
        if isinstance(part, Text | Refusal) and not part.text:
            return b""
        return self._say(part)

    def _more(self, event: Delta) -> bytes:
        written = self._parts.get(event.index)
        if written is None or not event.text:
            return b""
        if isinstance(written.part, ToolCall):
            written.arguments += event.text
            return b""
        return self._say(Thinking(event.text) if isinstance(written.part, Thinking) else Text(event.text))

    def _sign(self, event: Signed) -> bytes:
        written = self._parts.get(event.index)
        if written is None:
            return b""
        if isinstance(written.part, ToolCall):
            written.part.signature = event.signature
            return b""
        return self._say(Thinking(signature=event.signature))

    def _end(self, index: int) -> bytes:
        written = self._parts.pop(index, None)
        if written is None or not isinstance(written.part, ToolCall):
            return b""
        call = written.part
        return self._say(ToolCall(call.id, call.name, written.arguments, call.signature))

    def _say(self, part: Part) -> bytes:
        written = write_answer_part(part)
        return self._piece(answer_object(self._id, self._model, [written])) if written is not None else b""

    def _piece(self, value: dict[str, Any]) -> bytes:
        if not self._as_array:
            return event_bytes(value)
        head, self._is_first = (b"[" if self._is_first else b",\r\n"), False
        return head + to_bytes(value)
