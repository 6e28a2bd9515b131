"""Reading Gemini's streams: server-sent events with `alt=sse`, one JSON array without."""

from __future__ import annotations

from typing import Any

import msgspec

from paddock.llm.formats.base import BrokenStream
from paddock.llm.formats.failures import told_failure
from paddock.llm.formats.fields import Fields, answer_fields
from paddock.llm.formats.gemini.answer import (
    MISTAKES,
    CallIds,
    blocked,
    continues,
    first_candidate,
    is_carried,
    read_finish,
    read_part,
    read_usage,
)
from paddock.llm.formats.gemini.parts import camel
from paddock.llm.formats.sse import MAX_EVENT, EventStreamReader
from paddock.llm.neutral import (
    Delta,
    Event,
    Failed,
    Failure,
    Finished,
    Part,
    PartEnded,
    PartStarted,
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


class _QuickPart(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    thought: bool = False
    thoughtSignature: str | None = None  # noqa: N815 - the API's own name


class _QuickContent(msgspec.Struct):
    parts: list[_QuickPart]


class _QuickCandidate(msgspec.Struct):
    content: _QuickContent
    finishReason: str | None = None  # noqa: N815 - the API's own name


class _QuickAnswer(msgspec.Struct):
    candidates: list[_QuickCandidate]
    usageMetadata: dict[str, Any] | None = None  # noqa: N815 - the API's own name


_decode = msgspec.json.Decoder(_QuickAnswer).decode


class GeminiReader(EventStreamReader):
    def __init__(self) -> None:
        super().__init__()
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
        return self._read_all(self._array.feed(data)) if self._array is not None else super().feed(data)

    def _quick(self, piece: bytes) -> Delta | None:
        """More of the text being told and nothing else, which is what most of a stream says; `None` for all else."""
        opened = self._open
        if opened is None or self._ended or self._reason is not None:
            return None
        try:
            found = _decode(piece)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        if len(found.candidates) != 1 or found.candidates[0].finishReason is not None:
            return None
        parts = found.candidates[0].content.parts
        if len(parts) != 1 or not parts[0].text or parts[0].thoughtSignature is not None:
            return None
        if parts[0].thought is not isinstance(opened, Thinking):
            return None
        if isinstance(opened, Thinking) and (opened.signature is not None or not opened.text):
            return None
        if found.usageMetadata is not None:
            self._usage = read_usage(Fields(found.usageMetadata))
        return Delta(self._next - 1, parts[0].text)

    def close(self) -> list[Event]:
        events = [event for found in self._events.close() for event in self._read(found.data)]
        if not self._ended and self._reason is not None:
            events += self._finish()
        if not self._ended:
            raise BrokenStream("the stream ended without a finishReason")
        return events

    def _read(self, data: str | bytes, name: str = "") -> list[Event]:
        if self._ended or data == "[DONE]":
            return []
        fields = answer_fields(data)
        fields = Fields(camel(fields.value), "", BrokenStream)
        if "error" in fields:
            return [self._failed(fields)]
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

    def _failed(self, fields: Fields) -> Failed:
        self._ended = True
        return Failed(told_failure(fields.value) or Failure(500, "the provider failed without saying why"))

    def _add(self, part: Part) -> list[Event]:
        events: list[Event] = []
        if isinstance(part, Text) and isinstance(self._open, Text):
            return [Delta(self._next - 1, part.text)]
        if isinstance(part, Thinking) and isinstance(self._open, Thinking) and continues(self._open, part):
            self._open.signature = part.signature
            if part.text and not is_carried(part):
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
            events.append(PartStarted(index, Thinking(redacted=part.redacted)))
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
