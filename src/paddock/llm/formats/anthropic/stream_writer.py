"""Writing Anthropic's streams of events."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from paddock.llm.formats.anthropic.answer import (
    failure_object,
    new_id,
    write_finish,
    write_usage,
    written_blocks,
)
from paddock.llm.formats.base import StreamWriter
from paddock.llm.formats.fields import to_bytes
from paddock.llm.formats.seals import ANTHROPIC, written
from paddock.llm.formats.sse import event_bytes
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
class _Block:
    """A block being written; what comes while another is open waits, since blocks must not overlap."""

    number: int
    part: Part
    head: bytes
    """How every piece of it begins."""
    waiting: bytearray = field(default_factory=bytearray)
    has_ended: bool = False


class AnthropicWriter(StreamWriter):
    def __init__(self, names: dict[str, str] | None = None) -> None:
        self._names = names or {}
        self._blocks: dict[int, _Block] = {}
        """Those not yet finished, in order; only the first is written through."""
        self._next = 0

    def ping(self) -> bytes:
        return _event({"type": "ping"})

    def write(self, event: Event) -> bytes:
        match event:
            case Delta():
                return self._say(event.index, self._more(event.index, event.text))
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
        if isinstance(part, ToolCall) and part.name in self._names:
            part = replace(part, name=self._names[part.name])
        said = bytearray()
        blocks = written_blocks(part)
        for ahead in blocks[:-1]:
            said += self._seal(ahead)
        if not blocks:
            return b""
        block = self._blocks[event.index] = _Block(self._next, part, _head(self._next, part))
        self._next += 1
        content, first, seal = blocks[-1], "", None
        if isinstance(part, Text | Refusal):
            first, content["text"] = content["text"], ""
        elif content["type"] == "thinking":
            first, content["thinking"] = content["thinking"], ""
            seal, content["signature"] = content["signature"], ""
        elif isinstance(part, ToolCall):
            first, content["input"] = part.arguments, {}
        said += _event({"type": "content_block_start", "index": block.number, "content_block": content})
        if first:
            said += self._more(event.index, first)
        if seal:
            said += self._sealed(block, seal)
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
        return block.head + to_bytes(text) + b"}}\n\n"

    def _signature(self, event: Signed) -> bytes:
        block = self._blocks.get(event.index)
        if block is None or not isinstance(block.part, Thinking):
            return b""
        return self._sealed(block, written(event.signature, ANTHROPIC))

    def _sealed(self, block: _Block, seal: str) -> bytes:
        delta = {"type": "signature_delta", "signature": seal}
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
    return event_bytes(data, str(data["type"]))


def _head(number: int, part: Part) -> bytes:
    kind, name = "text_delta", "text"
    if isinstance(part, ToolCall):
        kind, name = "input_json_delta", "partial_json"
    elif isinstance(part, Thinking):
        kind, name = "thinking_delta", "thinking"
    start = f'{{"type":"content_block_delta","index":{number},"delta":{{"type":"{kind}","{name}":'
    return f"event: content_block_delta\ndata: {start}".encode()
