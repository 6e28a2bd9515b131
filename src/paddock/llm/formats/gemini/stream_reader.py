"""Parse Gemini's streams: server-sent events with `alt=sse`, one JSON array without."""

from __future__ import annotations

from typing import Any

import msgspec

from paddock.llm.formats.base import BrokenModelStream
from paddock.llm.formats.gemini.answer import (
    GEMINI_ERROR_FINISH_REASONS,
    GeminiCallIdGenerator,
    continues_gemini_thought,
    first_gemini_candidate,
    gemini_prompt_block_reason,
    is_foreign_thought,
    read_gemini_answer_part,
    read_gemini_finish_reason,
    read_gemini_usage,
)
from paddock.llm.formats.gemini.content_parts import camel_case_keys
from paddock.llm.formats.json_fields import JsonFields, parse_answer_body
from paddock.llm.formats.neutral import (
    AnswerPartDelta,
    AnswerPartEnded,
    AnswerPartSigned,
    AnswerPartStarted,
    AnswerStreamFailed,
    AnswerStreamFinished,
    AnswerStreamStarted,
    MessagePart,
    ModelFailure,
    ModelText,
    ModelThinking,
    ModelToolCall,
    StreamEvent,
    TokenUsage,
)
from paddock.llm.formats.provider_errors import find_error_in_json
from paddock.llm.formats.sse import MAX_EVENT_BYTES, EventStreamReader


class _JsonArrayReader:
    """Incremental parser that splits a JSON array into its objects."""

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
        if len(self._object) > MAX_EVENT_BYTES:
            raise BrokenModelStream(f"an object of the stream is larger than {MAX_EVENT_BYTES} bytes")
        return found


class _TextPart(msgspec.Struct, forbid_unknown_fields=True):
    text: str
    thought: bool = False
    thoughtSignature: str | None = None  # noqa: N815 - the API's own name


class _TextContent(msgspec.Struct):
    parts: list[_TextPart]


class _TextCandidate(msgspec.Struct):
    content: _TextContent
    finishReason: str | None = None  # noqa: N815 - the API's own name


class _TextChunk(msgspec.Struct):
    candidates: list[_TextCandidate]
    usageMetadata: dict[str, Any] | None = None  # noqa: N815 - the API's own name


_decode = msgspec.json.Decoder(_TextChunk).decode


class GeminiStreamReader(EventStreamReader):
    def __init__(self) -> None:
        super().__init__()
        self._array: _JsonArrayReader | None = None
        self._is_framing_known = False
        self._ids: GeminiCallIdGenerator | None = None
        self._next_index = 0
        self._open_part: ModelText | ModelThinking | None = None
        self._has_calls = False
        self._usage: TokenUsage | None = None
        self._reason: str | None = None
        self._ended = False

    def feed(self, data: bytes) -> list[StreamEvent]:
        if not self._is_framing_known:
            data = data.lstrip()
            if not data:
                return []
            self._is_framing_known = True
            # An array of answers, or a single object, as for an error.
            self._array = _JsonArrayReader() if data[:1] in (b"[", b"{") else None
        return self._read_all(self._array.feed(data)) if self._array is not None else super().feed(data)

    def _parse_delta_fast(self, piece: bytes) -> AnswerPartDelta | None:
        """Parse a chunk that only continues the open text, the most frequent kind; `None` for all others."""
        opened = self._open_part
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
        if parts[0].thought is not isinstance(opened, ModelThinking):
            return None
        if isinstance(opened, ModelThinking) and (opened.signature is not None or not opened.text):
            return None
        if found.usageMetadata is not None:
            self._usage = read_gemini_usage(JsonFields(found.usageMetadata))
        return AnswerPartDelta(self._next_index - 1, parts[0].text)

    def close(self) -> list[StreamEvent]:
        events = [event for found in self._events.close() for event in self._read_event(found.data)]
        if not self._ended and self._reason is not None:
            events += self._finish()
        if not self._ended:
            raise BrokenModelStream("the stream ended without a finishReason")
        return events

    def _read_event(self, data: str | bytes, name: str = "") -> list[StreamEvent]:
        if self._ended or data == "[DONE]":
            return []
        fields = parse_answer_body(data)
        fields = JsonFields(camel_case_keys(fields.value), "", BrokenModelStream)
        if "error" in fields:
            return [self._read_failure(fields)]
        events: list[StreamEvent] = []
        if self._ids is None:
            answer_id = fields.optional_text("responseId") or ""
            self._ids = GeminiCallIdGenerator(answer_id)
            events.append(AnswerStreamStarted(answer_id, fields.optional_text("modelVersion") or ""))
        usage = fields.optional_object("usageMetadata")
        if usage is not None:
            self._usage = read_gemini_usage(usage)
        candidate = first_gemini_candidate(fields)
        if candidate is None:
            if gemini_prompt_block_reason(fields) is not None:
                self._reason = "SAFETY"
                events += self._finish()
            return events
        content = candidate.optional_object("content")
        for part in content.objects("parts") if content is not None else ():
            for read in read_gemini_answer_part(part, self._ids, []):
                events += self._add_part(read)
        self._reason = candidate.optional_text("finishReason") or self._reason
        if self._reason in GEMINI_ERROR_FINISH_REASONS:
            self._ended = True
            detail = candidate.optional_text("finishMessage") or "the model made a mistake"
            events.append(AnswerStreamFailed(ModelFailure(502, f"{self._reason}: {detail}", code=self._reason)))
        elif self._reason is not None and usage is not None:
            events += self._finish()
        return events

    def _read_failure(self, fields: JsonFields) -> AnswerStreamFailed:
        self._ended = True
        return AnswerStreamFailed(
            find_error_in_json(fields.value) or ModelFailure(500, "the provider failed without a message")
        )

    def _add_part(self, part: MessagePart) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        if isinstance(part, ModelText) and isinstance(self._open_part, ModelText):
            return [AnswerPartDelta(self._next_index - 1, part.text)]
        if (
            isinstance(part, ModelThinking)
            and isinstance(self._open_part, ModelThinking)
            and continues_gemini_thought(self._open_part, part)
        ):
            self._open_part.signature = part.signature
            if part.text and not is_foreign_thought(part):
                events.append(AnswerPartDelta(self._next_index - 1, part.text))
            if part.signature:
                events.append(AnswerPartSigned(self._next_index - 1, part.signature))
            return events
        events += self._close_part()
        index, self._next_index = self._next_index, self._next_index + 1
        if isinstance(part, ModelText):
            self._open_part = part
            return [*events, AnswerPartStarted(index, ModelText("")), AnswerPartDelta(index, part.text)]
        if isinstance(part, ModelThinking):
            self._open_part = part
            events.append(AnswerPartStarted(index, ModelThinking(redacted=part.redacted)))
            if part.text:
                events.append(AnswerPartDelta(index, part.text))
            if part.signature:
                events.append(AnswerPartSigned(index, part.signature))
            return events
        if isinstance(part, ModelToolCall):
            self._has_calls = True
            started_call = ModelToolCall(part.id, part.name, "", part.signature)
            return [
                *events,
                AnswerPartStarted(index, started_call),
                AnswerPartDelta(index, part.arguments),
                AnswerPartEnded(index),
            ]
        return [*events, AnswerPartStarted(index, part), AnswerPartEnded(index)]

    def _close_part(self) -> list[StreamEvent]:
        if self._open_part is None:
            return []
        self._open_part = None
        return [AnswerPartEnded(self._next_index - 1)]

    def _finish(self) -> list[StreamEvent]:
        self._ended = True
        return [
            *self._close_part(),
            AnswerStreamFinished(read_gemini_finish_reason(self._reason, self._has_calls), self._usage),
        ]
