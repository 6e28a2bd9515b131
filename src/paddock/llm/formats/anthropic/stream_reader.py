"""Parse Anthropic's event streams."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from paddock.llm.formats.anthropic.answer import (
    merge_anthropic_usage,
    read_anthropic_finish_reason,
    read_anthropic_usage,
)
from paddock.llm.formats.base import BrokenModelStream
from paddock.llm.formats.call_arguments import call_arguments_text
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
    ProviderSignature,
    StreamEvent,
    TokenUsage,
)
from paddock.llm.formats.provider_errors import find_error_in_json
from paddock.llm.formats.sse import EventStreamReader
from paddock.llm.formats.thought_signatures import ANTHROPIC_FAMILY, parse_call_thought_signature


@dataclass(slots=True)
class _OpenBlock:
    """A content block that has not ended."""

    index: int
    is_call: bool
    is_empty: bool = True
    signature: list[str] = field(default_factory=list)
    """Pieces of the signature, which usually comes in one piece."""


class _DeltaBody(msgspec.Struct):
    type: str
    text: str = ""
    thinking: str = ""
    partial_json: str = ""


class _DeltaEvent(msgspec.Struct):
    index: int
    delta: _DeltaBody


_DELTA_FIELDS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
_DELTA_HEAD = b'{"type":"content_block_delta"'
_decode = msgspec.json.Decoder(_DeltaEvent).decode


class AnthropicStreamReader(EventStreamReader):
    def __init__(self) -> None:
        super().__init__()
        self._open_blocks: dict[int, _OpenBlock | None] = {}
        self._next_index = 0
        self._started = False
        self._ended = False
        self._has_calls = False
        self._usage: dict[str, Any] = {}
        self._has_stop_reason = False
        self._stop_reason: str | None = None
        self._stop_sequence: str | None = None

    def _parse_delta_fast(self, piece: bytes) -> AnswerPartDelta | None:
        """Parse a delta of an open block, the most frequent event; `None` for all others."""
        if not piece.startswith(_DELTA_HEAD) or self._ended:
            return None
        try:
            found = _decode(piece)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        delta, opened = found.delta, self._open_blocks.get(found.index)
        if opened is None:
            return None
        text = getattr(delta, _DELTA_FIELDS.get(delta.type, ""), "")
        if not text:
            return None
        opened.is_empty = False
        return AnswerPartDelta(opened.index, text)

    def close(self) -> list[StreamEvent]:
        events = [event for found in self._events.close() for event in self._read_event(found.data)]
        if not self._ended:
            raise BrokenModelStream("the stream ended without message_stop")
        return events

    def _read_event(self, data: str | bytes, name: str = "") -> list[StreamEvent]:
        if self._ended:
            return []
        fields = parse_answer_body(data)
        kind = fields.optional_text("type")
        if kind == "error":
            self._ended = True
            return [
                AnswerStreamFailed(
                    find_error_in_json(fields.value) or ModelFailure(500, "the provider failed without a message")
                )
            ]
        if kind == "message_start":
            message = fields.object("message")
            self._started = True
            self._add_usage(message)
            return [
                AnswerStreamStarted(
                    message.optional_text("id") or "", message.optional_text("model") or "", self._usage_so_far()
                )
            ]
        if kind in (None, "ping"):
            return []
        if not self._started:
            raise BrokenModelStream(f"the stream has {kind} before message_start")
        if kind == "content_block_start":
            return self._start_block(fields)
        if kind == "content_block_delta":
            return self._continue_block(fields)
        if kind == "content_block_stop":
            return self._end_block(fields.integer("index"))
        if kind == "message_delta":
            self._add_usage(fields)
            self._read_stop_reason(fields.optional_object("delta"))
            return []
        return self._finish() if kind == "message_stop" else []

    def _add_usage(self, fields: JsonFields) -> None:
        usage = fields.optional_object("usage")
        if usage is not None:
            merge_anthropic_usage(self._usage, usage.value)

    def _usage_so_far(self) -> TokenUsage | None:
        return read_anthropic_usage(JsonFields(self._usage)) if self._usage else None

    def _read_stop_reason(self, delta: JsonFields | None) -> None:
        """Read the stop reason. Some providers send it in several events, or only usage in the last one."""
        if delta is not None:
            self._has_stop_reason = True
            self._stop_reason = delta.optional_text("stop_reason") or self._stop_reason
            self._stop_sequence = delta.optional_text("stop_sequence") or self._stop_sequence

    def _start_block(self, fields: JsonFields) -> list[StreamEvent]:
        number, block = fields.integer("index"), fields.object("content_block")
        if number in self._open_blocks:
            raise BrokenModelStream(f"the stream starts block {number} twice")
        kind = block.text("type")
        part: MessagePart
        first = ""
        if kind == "text":
            part, first = ModelText(""), block.optional_text("text") or ""
        elif kind == "thinking":
            part, first = ModelThinking(), block.optional_text("thinking") or ""
        elif kind == "redacted_thinking":
            part = ModelThinking(redacted=ProviderSignature(block.text("data"), ANTHROPIC_FAMILY))
        elif kind == "tool_use":
            part = ModelToolCall(block.text("id"), block.text("name"), "")
            first = call_arguments_text(block.get("input")) if block.get("input") else ""
            self._has_calls = True
        else:
            # A tool run by the provider; its calls and results are not part of the answer.
            self._open_blocks[number] = None
            return []
        opened = self._open_blocks[number] = _OpenBlock(self._next_index, kind == "tool_use", not first)
        self._next_index += 1
        events: list[StreamEvent] = [AnswerPartStarted(opened.index, part)]
        if first:
            events.append(AnswerPartDelta(opened.index, first))
        return events

    def _continue_block(self, fields: JsonFields) -> list[StreamEvent]:
        number, delta = fields.integer("index"), fields.object("delta")
        if number not in self._open_blocks:
            raise BrokenModelStream(f"the stream continues block {number}, which is not open")
        opened = self._open_blocks[number]
        if opened is None:
            return []
        kind = delta.text("type")
        if kind == "signature_delta":
            opened.signature.append(delta.text("signature"))
            return []
        name = _DELTA_FIELDS.get(kind)
        text = delta.text(name) if name else ""
        if not text:
            return []
        opened.is_empty = False
        return [AnswerPartDelta(opened.index, text)]

    def _end_block(self, number: int) -> list[StreamEvent]:
        if number not in self._open_blocks:
            raise BrokenModelStream(f"the stream ends block {number}, which is not open")
        opened = self._open_blocks.pop(number)
        if opened is None:
            return []
        events: list[StreamEvent] = []
        if opened.is_call and opened.is_empty:
            events.append(AnswerPartDelta(opened.index, "{}"))
        signature = parse_call_thought_signature("".join(opened.signature), ANTHROPIC_FAMILY)
        if signature is not None:
            events.append(AnswerPartSigned(opened.index, signature))
        return [*events, AnswerPartEnded(opened.index)]

    def _finish(self) -> list[StreamEvent]:
        if not self._has_stop_reason:
            raise BrokenModelStream("the stream ended without a stop reason")
        events = [event for number in list(self._open_blocks) for event in self._end_block(number)]
        self._ended = True
        finish = read_anthropic_finish_reason(self._stop_reason, self._has_calls)
        return [*events, AnswerStreamFinished(finish, self._usage_so_far(), self._stop_sequence)]
