"""Reading Anthropic's streams of events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from paddock.llm.formats.anthropic.answer import add_usage, read_finish, read_usage
from paddock.llm.formats.base import BrokenStream
from paddock.llm.formats.failures import told_failure
from paddock.llm.formats.fields import Fields, answer_fields
from paddock.llm.formats.seals import ANTHROPIC, signature
from paddock.llm.formats.sse import EventStreamReader
from paddock.llm.formats.turns import arguments_text
from paddock.llm.neutral import (
    Delta,
    Event,
    Failed,
    Failure,
    Finished,
    Part,
    PartEnded,
    PartStarted,
    Signature,
    Signed,
    Started,
    Text,
    Thinking,
    ToolCall,
    Usage,
)


@dataclass(slots=True)
class _Open:
    """A block being read."""

    index: int
    is_call: bool
    is_empty: bool = True
    seal: list[str] = field(default_factory=list)
    """Its pieces: seals come whole, as a rule, but nobody promised it."""


class _QuickDelta(msgspec.Struct):
    type: str
    text: str = ""
    thinking: str = ""
    partial_json: str = ""


class _Quick(msgspec.Struct):
    index: int
    delta: _QuickDelta


_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
_DELTA_HEAD = b'{"type":"content_block_delta"'
_decode = msgspec.json.Decoder(_Quick).decode


class AnthropicReader(EventStreamReader):
    def __init__(self) -> None:
        super().__init__()
        self._open: dict[int, _Open | None] = {}
        self._next = 0
        self._started = False
        self._ended = False
        self._called = False
        self._usage: dict[str, Any] = {}
        self._told_why = False
        self._reason: str | None = None
        self._stop_sequence: str | None = None

    def _quick(self, piece: bytes) -> Delta | None:
        """More of an open block, which is what most of a stream says; `None` for all else."""
        if not piece.startswith(_DELTA_HEAD) or self._ended:
            return None
        try:
            found = _decode(piece)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        delta, opened = found.delta, self._open.get(found.index)
        if opened is None:
            return None
        text = getattr(delta, _DELTAS.get(delta.type, ""), "")
        if not text:
            return None
        opened.is_empty = False
        return Delta(opened.index, text)

    def close(self) -> list[Event]:
        events = [event for found in self._events.close() for event in self._read(found.data)]
        if not self._ended:
            raise BrokenStream("the stream ended without message_stop")
        return events

    def _read(self, data: str | bytes, name: str = "") -> list[Event]:
        if self._ended:
            return []
        fields = answer_fields(data)
        kind = fields.text_or("type")
        if kind == "error":
            self._ended = True
            return [Failed(told_failure(fields.value) or Failure(500, "the provider failed without saying why"))]
        if kind == "message_start":
            message = fields.object("message")
            self._started = True
            self._count(message)
            return [Started(message.text_or("id") or "", message.text_or("model") or "", self._counted())]
        if kind in (None, "ping"):
            return []
        if not self._started:
            raise BrokenStream(f"the stream has {kind} before message_start")
        if kind == "content_block_start":
            return self._start(fields)
        if kind == "content_block_delta":
            return self._more(fields)
        if kind == "content_block_stop":
            return self._stop(fields.integer("index"))
        if kind == "message_delta":
            self._count(fields)
            self._why(fields.object_or("delta"))
            return []
        return self._finish() if kind == "message_stop" else []

    def _count(self, fields: Fields) -> None:
        usage = fields.object_or("usage")
        if usage is not None:
            add_usage(self._usage, usage.value)

    def _counted(self) -> Usage | None:
        return read_usage(Fields(self._usage)) if self._usage else None

    def _why(self, delta: Fields | None) -> None:
        """Take in why the answer ends. Some providers say so in several events, or tell only of tokens in the last."""
        if delta is not None:
            self._told_why = True
            self._reason = delta.text_or("stop_reason") or self._reason
            self._stop_sequence = delta.text_or("stop_sequence") or self._stop_sequence

    def _start(self, fields: Fields) -> list[Event]:
        number, block = fields.integer("index"), fields.object("content_block")
        if number in self._open:
            raise BrokenStream(f"the stream starts block {number} twice")
        kind = block.text("type")
        part: Part
        first = ""
        if kind == "text":
            part, first = Text(""), block.text_or("text") or ""
        elif kind == "thinking":
            part, first = Thinking(), block.text_or("thinking") or ""
        elif kind == "redacted_thinking":
            part = Thinking(redacted=Signature(block.text("data"), ANTHROPIC))
        elif kind == "tool_use":
            part = ToolCall(block.text("id"), block.text("name"), "")
            first = arguments_text(block.get("input")) if block.get("input") else ""
            self._called = True
        else:
            # A tool of the provider's own: its doings are no part of the answer.
            self._open[number] = None
            return []
        opened = self._open[number] = _Open(self._next, kind == "tool_use", not first)
        self._next += 1
        events: list[Event] = [PartStarted(opened.index, part)]
        if first:
            events.append(Delta(opened.index, first))
        return events

    def _more(self, fields: Fields) -> list[Event]:
        number, delta = fields.integer("index"), fields.object("delta")
        if number not in self._open:
            raise BrokenStream(f"the stream continues block {number}, which is not open")
        opened = self._open[number]
        if opened is None:
            return []
        kind = delta.text("type")
        if kind == "signature_delta":
            opened.seal.append(delta.text("signature"))
            return []
        name = _DELTAS.get(kind)
        text = delta.text(name) if name else ""
        if not text:
            return []
        opened.is_empty = False
        return [Delta(opened.index, text)]

    def _stop(self, number: int) -> list[Event]:
        if number not in self._open:
            raise BrokenStream(f"the stream ends block {number}, which is not open")
        opened = self._open.pop(number)
        if opened is None:
            return []
        events: list[Event] = []
        if opened.is_call and opened.is_empty:
            events.append(Delta(opened.index, "{}"))
        seal = signature("".join(opened.seal), ANTHROPIC)
        if seal is not None:
            events.append(Signed(opened.index, seal))
        return [*events, PartEnded(opened.index)]

    def _finish(self) -> list[Event]:
        if not self._told_why:
            raise BrokenStream("the stream ended without a stop reason")
        events = [event for number in list(self._open) for event in self._stop(number)]
        self._ended = True
        finish = read_finish(self._reason, self._called)
        return [*events, Finished(finish, self._counted(), self._stop_sequence)]
