"""Write Anthropic's event streams."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from paddock.llm.formats.anthropic.answer import (
    anthropic_error_object,
    new_anthropic_message_id,
    write_anthropic_answer_blocks,
    write_anthropic_finish_reason,
    write_anthropic_usage,
)
from paddock.llm.formats.base import ModelStreamWriter
from paddock.llm.formats.json_fields import encode_json
from paddock.llm.formats.neutral import (
    AnswerPartDelta,
    AnswerPartEnded,
    AnswerPartSigned,
    AnswerPartStarted,
    AnswerStreamFailed,
    AnswerStreamFinished,
    AnswerStreamStarted,
    MessagePart,
    ModelRefusal,
    ModelText,
    ModelThinking,
    ModelToolCall,
    StreamEvent,
)
from paddock.llm.formats.sse import encode_server_sent_event
from paddock.llm.formats.thought_signatures import ANTHROPIC_FAMILY, format_thought_signature


@dataclass(slots=True)
class _OpenBlock:
    """A content block that has not ended; its events wait while an earlier block is open."""

    number: int
    part: MessagePart
    head: bytes
    """Prefix of every delta event of the block."""
    waiting: bytearray = field(default_factory=bytearray)
    has_ended: bool = False


class AnthropicStreamWriter(ModelStreamWriter):
    def __init__(self, names: dict[str, str] | None = None) -> None:
        self._names = names or {}
        self._blocks: dict[int, _OpenBlock] = {}
        """Unfinished blocks, in order; only events of the first are sent immediately."""
        self._next_number = 0

    def ping(self) -> bytes:
        return _encode_event({"type": "ping"})

    def write(self, event: StreamEvent) -> bytes:
        match event:
            case AnswerPartDelta():
                return self._send_or_hold(event.index, self._delta(event.index, event.text))
            case AnswerStreamStarted():
                message: dict[str, Any] = {
                    "id": event.id or new_anthropic_message_id(),
                    "type": "message",
                    "role": "assistant",
                    "model": event.model,
                    "content": [],
                    "stop_reason": None,
                    "stop_sequence": None,
                    "usage": write_anthropic_usage(event.usage),
                }
                return _encode_event({"type": "message_start", "message": message}) + self.ping()
            case AnswerPartStarted():
                return self._start_part(event)
            case AnswerPartSigned():
                return self._send_or_hold(event.index, self._signature_delta_of_part(event))
            case AnswerPartEnded():
                return self._end_part(event.index)
            case AnswerStreamFinished():
                rest = b"".join(self._end_part(index) for index in list(self._blocks))
                delta = {
                    "stop_reason": write_anthropic_finish_reason(event.finish, event.stop_sequence),
                    "stop_sequence": event.stop_sequence,
                }
                usage = write_anthropic_usage(event.usage)
                end = _encode_event({"type": "message_delta", "delta": delta, "usage": usage})
                return rest + end + _encode_event({"type": "message_stop"})
            case AnswerStreamFailed():
                return _encode_event(anthropic_error_object(event.failure))

    def _start_part(self, event: AnswerPartStarted) -> bytes:
        part = event.part
        if isinstance(part, ModelToolCall) and part.name in self._names:
            part = replace(part, name=self._names[part.name])
        sent = bytearray()
        blocks = write_anthropic_answer_blocks(part)
        for ahead in blocks[:-1]:
            sent += self._signature_block(ahead)
        if not blocks:
            return b""
        block = self._blocks[event.index] = _OpenBlock(self._next_number, part, _delta_prefix(self._next_number, part))
        self._next_number += 1
        content, first, signature = blocks[-1], "", None
        if isinstance(part, ModelText | ModelRefusal):
            first, content["text"] = content["text"], ""
        elif content["type"] == "thinking":
            first, content["thinking"] = content["thinking"], ""
            signature, content["signature"] = content["signature"], ""
        elif isinstance(part, ModelToolCall):
            first, content["input"] = part.arguments, {}
        sent += _encode_event({"type": "content_block_start", "index": block.number, "content_block": content})
        if first:
            sent += self._delta(event.index, first)
        if signature:
            sent += self._signature_delta(block, signature)
        return self._send_or_hold(event.index, bytes(sent))

    def _signature_block(self, block: dict[str, Any]) -> bytes:
        number, self._next_number = self._next_number, self._next_number + 1
        delta = {"type": "signature_delta", "signature": block["signature"]}
        return (
            _encode_event({"type": "content_block_start", "index": number, "content_block": block | {"signature": ""}})
            + _encode_event({"type": "content_block_delta", "index": number, "delta": delta})
            + _encode_event({"type": "content_block_stop", "index": number})
        )

    def _delta(self, index: int, text: str) -> bytes:
        block = self._blocks.get(index)
        if block is None or not text:
            return b""
        return block.head + encode_json(text) + b"}}\n\n"

    def _signature_delta_of_part(self, event: AnswerPartSigned) -> bytes:
        block = self._blocks.get(event.index)
        if block is None or not isinstance(block.part, ModelThinking):
            return b""
        return self._signature_delta(block, format_thought_signature(event.signature, ANTHROPIC_FAMILY))

    def _signature_delta(self, block: _OpenBlock, signature: str) -> bytes:
        delta = {"type": "signature_delta", "signature": signature}
        return _encode_event({"type": "content_block_delta", "index": block.number, "delta": delta})

    def _end_part(self, index: int) -> bytes:
        block = self._blocks.get(index)
        if block is None:
            return b""
        sent = self._send_or_hold(index, _encode_event({"type": "content_block_stop", "index": block.number}))
        block.has_ended = True
        released = bytearray(sent)
        while self._blocks:
            first = next(iter(self._blocks))
            released += self._blocks[first].waiting
            self._blocks[first].waiting.clear()
            if not self._blocks[first].has_ended:
                break
            del self._blocks[first]
        return bytes(released)

    def _send_or_hold(self, index: int, data: bytes) -> bytes:
        block = self._blocks.get(index)
        if block is None or index == next(iter(self._blocks)):
            return data
        block.waiting += data
        return b""


def _encode_event(data: dict[str, Any]) -> bytes:
    return encode_server_sent_event(data, str(data["type"]))


def _delta_prefix(number: int, part: MessagePart) -> bytes:
    kind, name = "text_delta", "text"
    if isinstance(part, ModelToolCall):
        kind, name = "input_json_delta", "partial_json"
    elif isinstance(part, ModelThinking):
        kind, name = "thinking_delta", "thinking"
    start = f'{{"type":"content_block_delta","index":{number},"delta":{{"type":"{kind}","{name}":'
    return f"event: content_block_delta\ndata: {start}".encode()
