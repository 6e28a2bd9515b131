"""Anthropic's streams of events."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from paddock.llm.formats.anthropic.answer import (
    failure_object,
    new_id,
    read_failure,
    read_finish,
    read_usage,
    write_finish,
    write_usage,
    written_blocks,
)
from paddock.llm.formats.base import BrokenStream, StreamReader, StreamWriter
from paddock.llm.formats.failures import STATUSES
from paddock.llm.formats.fields import Fields, answer_fields
from paddock.llm.formats.sse import EventReader, event_bytes
from paddock.llm.formats.turns import arguments_text
from paddock.llm.neutral import (
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


@dataclass(slots=True)
class _Open:
    """A block being read."""

    index: int
    is_call: bool
    is_empty: bool = True


class AnthropicReader(StreamReader):
    def __init__(self) -> None:
        self._events = EventReader()
        self._open: dict[int, _Open | None] = {}
        self._next = 0
        self._started = False
        self._ended = False
        self._called = False
        self._has_usage = False
        self._usage: dict[str, int] = {}
        self._delta: Fields | None = None

    def feed(self, data: bytes) -> list[Event]:
        return [event for found in self._events.feed(data) for event in self._read(found.data)]

    def close(self) -> list[Event]:
        events = [event for found in self._events.close() for event in self._read(found.data)]
        if not self._ended:
            raise BrokenStream("the stream ended without message_stop")
        return events

    def _read(self, data: str) -> list[Event]:
        if self._ended:
            return []
        fields = answer_fields(data)
        kind = fields.text_or("type")
        if kind == "error":
            self._ended = True
            failure = read_failure(500, data.encode(errors="replace"))
            failure.status = STATUSES.get(failure.kind, 500)
            return [Failed(failure)]
        if kind == "message_start":
            message = fields.object("message")
            self._started = True
            self._count(message)
            usage = read_usage(Fields(self._usage)) if self._has_usage else None
            return [Started(message.text_or("id") or "", message.text_or("model") or "", usage)]
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
            self._delta = fields.object("delta")
            self._count(fields)
            return []
        return self._finish() if kind == "message_stop" else []

    def _count(self, fields: Fields) -> None:
        """Take in token counts, which are totals, and which some providers give at the start only or the end only."""
        usage = fields.object_or("usage")
        if usage is not None:
            self._has_usage = True
            for name in usage.value:
                self._usage[name] = max(usage.count(name), self._usage.get(name, 0))

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
            part = Thinking(redacted=block.text("data"))
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
            signature = delta.text("signature")
            return [Signed(opened.index, signature)] if signature else []
        name = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}.get(kind)
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
        ended: list[Event] = [PartEnded(opened.index)]
        return [Delta(opened.index, "{}"), *ended] if opened.is_call and opened.is_empty else ended

    def _finish(self) -> list[Event]:
        if self._delta is None:
            raise BrokenStream("the stream ended without a stop reason")
        events = [event for number in list(self._open) for event in self._stop(number)]
        self._ended = True
        finish = read_finish(self._delta.text_or("stop_reason"), self._called)
        usage = read_usage(Fields(self._usage)) if self._has_usage else None
        return [*events, Finished(finish, usage, self._delta.text_or("stop_sequence"))]


@dataclass(slots=True)
class _Block:
    """A block being written; what comes while another is open waits, since blocks must not overlap."""

    number: int
    part: Part
    waiting: bytearray = field(default_factory=bytearray)
    has_ended: bool = False


class AnthropicWriter(StreamWriter):
    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        """Those not yet finished, in order; only the first is written through."""
        self._next = 0

    def ping(self) -> bytes:
        return _event({"type": "ping"})

    def write(self, event: Event) -> bytes:
        match event:
            case Started():
                message: dict[str, Any] = {
                    "id": event.id or new_id(),
                    "type": "message",
                    "role": "assistant",
                    "model": event.model,
                    "content": [],
                    "stop_reason": None,
                    "stop_sequence": None,
                    "usage": write_usage(event.usage),
                }
                return _event({"type": "message_start", "message": message}) + self.ping()
            case PartStarted():
                return self._start(event)
            case Delta():
                return self._say(event.index, self._more(event.index, event.text))
            case Signed():
                return self._say(event.index, self._signature(event))
            case PartEnded():
                return self._end(event.index)
            case Finished():
                rest = b"".join(self._end(index) for index in list(self._blocks))
                delta = {
                    "stop_reason": write_finish(event.finish, event.stop_sequence),
                    "stop_sequence": event.stop_sequence,
                }
                usage = write_usage(event.usage)
                end = _event({"type": "message_delta", "delta": delta, "usage": usage})
                return rest + end + _event({"type": "message_stop"})
            case Failed():
                return _event(failure_object(event.failure))

    def _start(self, event: PartStarted) -> bytes:
        part = event.part
        said = bytearray()
        blocks = written_blocks(part)
        for seal in blocks[:-1]:
            said += self._seal(seal)
        if not blocks:
            return b""
        block = self._blocks[event.index] = _Block(self._next, part)
        self._next += 1
        content, first = blocks[-1], ""
        if isinstance(part, Text | Refusal):
            first, content["text"] = content["text"], ""
        elif isinstance(part, Thinking) and part.redacted is None:
            first, content["thinking"] = content["thinking"], ""
            content["signature"] = ""
        elif isinstance(part, ToolCall):
            first, content["input"] = part.arguments, {}
        said += _event({"type": "content_block_start", "index": block.number, "content_block": content})
        if first:
            said += self._more(event.index, first)
        if isinstance(part, Thinking) and part.signature:
            said += self._signature(Signed(event.index, part.signature))
        return self._say(event.index, bytes(said))

    def _seal(self, block: dict[str, Any]) -> bytes:
        number, self._next = self._next, self._next + 1
        delta = {"type": "signature_delta", "signature": block["signature"]}
        return (
            _event({"type": "content_block_start", "index": number, "content_block": block | {"signature": ""}})
            + _event({"type": "content_block_delta", "index": number, "delta": delta})
            + _event({"type": "content_block_stop", "index": number})
        )

    def _more(self, index: int, text: str) -> bytes:
        block = self._blocks.get(index)
        if block is None or not text:
            return b""
        if isinstance(block.part, ToolCall):
            delta = {"type": "input_json_delta", "partial_json": text}
        elif isinstance(block.part, Thinking):
            delta = {"type": "thinking_delta", "thinking": text}
        else:
            delta = {"type": "text_delta", "text": text}
        return _event({"type": "content_block_delta", "index": block.number, "delta": delta})

    def _signature(self, event: Signed) -> bytes:
        block = self._blocks.get(event.index)
        if block is None or not isinstance(block.part, Thinking):
            return b""
        delta = {"type": "signature_delta", "signature": event.signature}
        return _event({"type": "content_block_delta", "index": block.number, "delta": delta})

    def _end(self, index: int) -> bytes:
        block = self._blocks.get(index)
        if block is None:
            return b""
        said = self._say(index, _event({"type": "content_block_stop", "index": block.number}))
        block.has_ended = True
        released = bytearray(said)
        while self._blocks:
            first = next(iter(self._blocks))
            released += self._blocks[first].waiting
            self._blocks[first].waiting.clear()
            if not self._blocks[first].has_ended:
                break
            del self._blocks[first]
        return bytes(released)

    def _say(self, index: int, data: bytes) -> bytes:
        block = self._blocks.get(index)
        if block is None or index == next(iter(self._blocks)):
            return data
        block.waiting += data
        return b""


def _event(data: dict[str, Any]) -> bytes:
    return event_bytes(json.dumps(data, ensure_ascii=False, separators=(",", ":")), str(data["type"]))
