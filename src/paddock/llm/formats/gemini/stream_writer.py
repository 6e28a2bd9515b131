"""Write Gemini's streams: server-sent events with `alt=sse`, one JSON array without."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from paddock.llm.formats.base import ModelStreamWriter
from paddock.llm.formats.gemini.answer import (
    build_gemini_answer,
    gemini_error_object,
)
from paddock.llm.formats.gemini.content_parts import write_gemini_answer_part
from paddock.llm.formats.gemini.foreign_thoughts import pack_thoughts_in_signature
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
    TokenUsage,
)
from paddock.llm.formats.thought_signatures import GEMINI_FAMILY, is_foreign_signature


@dataclass(slots=True)
class _OpenPart:
    part: MessagePart
    pieces: list[str] = field(default_factory=list)
    """Pieces of the arguments of a call, or of the text of a thought."""

    def text(self) -> str:
        self.pieces = ["".join(self.pieces)]
        return self.pieces[0]


_TEXT_PREFIX = b'{"candidates":[{"content":{"parts":[{"text":'
_THOUGHT_PREFIX = b'{"candidates":[{"content":{"parts":[{"thought":true,"text":'


class GeminiStreamWriter(ModelStreamWriter):
    """Stream writer for Gemini; calls are held back until complete, as the format cannot split them."""

    def __init__(self, *, as_array: bool = False, names: dict[str, str] | None = None) -> None:
        self._as_array = as_array
        self._names = names or {}
        self._is_first = True
        self._id = ""
        self._model = ""
        self._chunk_suffix = b""
        """Suffix of every text chunk."""
        self._parts: dict[int, _OpenPart] = {}
        self._held_thoughts: list[ModelThinking] = []
        """Signed thoughts of other providers, to be packed into the next part."""

    def ping(self) -> bytes:
        return b"\n" if self._as_array else super().ping()

    def write(self, event: StreamEvent) -> bytes:
        match event:
            case AnswerPartDelta():
                return self._continue_part(event)
            case AnswerStreamStarted():
                self._id, self._model = event.id, event.model
                tail = encode_json({"modelVersion": event.model, "responseId": event.id})[1:]
                self._chunk_suffix = b'}],"role":"model"},"index":0}],' + tail
                return b""
            case AnswerPartStarted():
                return self._start_part(event)
            case AnswerPartSigned():
                return self._sign_part(event)
            case AnswerPartEnded():
                return self._end_part(event.index)
            case AnswerStreamFinished():
                rest = b"".join(self._end_part(index) for index in list(self._parts))
                end: dict[str, Any] = {"text": ""}
                if self._held_thoughts:
                    end["thoughtSignature"] = pack_thoughts_in_signature(self._held_thoughts)
                last = build_gemini_answer(self._id, self._model, [end], event.finish, event.usage or TokenUsage())
                return rest + self._encode_chunk(last) + (b"]" if self._as_array else b"")
            case AnswerStreamFailed():
                return self._encode_chunk(gemini_error_object(event.failure)) + (b"]" if self._as_array else b"")

    def _start_part(self, event: AnswerPartStarted) -> bytes:
        part = replace(event.part)
        if isinstance(part, ModelToolCall):
            part.name = self._names.get(part.name, part.name)
        self._parts[event.index] = _OpenPart(part)
        if isinstance(part, ModelToolCall):
            self._parts[event.index].pieces.append(part.arguments)
            return b""
        if isinstance(part, ModelThinking):
            if part.redacted is not None:
                self._held_thoughts.append(part)
                return b""
            self._parts[event.index].pieces.append(part.text)
        if isinstance(part, ModelText | ModelRefusal) and not part.text:
            return b""
        sent = self._encode_part(ModelThinking(part.text) if isinstance(part, ModelThinking) else part)
        if isinstance(part, ModelThinking) and part.signature:
            sent += self._sign_part(AnswerPartSigned(event.index, part.signature))
        return sent

    def _continue_part(self, event: AnswerPartDelta) -> bytes:
        written = self._parts.get(event.index)
        if written is None or not event.text:
            return b""
        if isinstance(written.part, ModelToolCall):
            written.pieces.append(event.text)
            return b""
        if isinstance(written.part, ModelThinking):
            written.pieces.append(event.text)
        elif self._held_thoughts:
            return self._encode_part(ModelText(event.text))
        head = _THOUGHT_PREFIX if isinstance(written.part, ModelThinking) else _TEXT_PREFIX
        return self._frame_chunk(b"".join((head, encode_json(event.text), self._chunk_suffix)))

    def _sign_part(self, event: AnswerPartSigned) -> bytes:
        written = self._parts.get(event.index)
        if written is None:
            return b""
        if isinstance(written.part, ModelToolCall):
            written.part.signature = event.signature
            return b""
        if isinstance(written.part, ModelThinking) and is_foreign_signature(event.signature, GEMINI_FAMILY):
            self._held_thoughts.append(ModelThinking(written.text(), event.signature))
            return b""
        return self._encode_part(ModelThinking(signature=event.signature))

    def _end_part(self, index: int) -> bytes:
        written = self._parts.pop(index, None)
        if written is None or not isinstance(written.part, ModelToolCall):
            return b""
        call = written.part
        return self._encode_part(ModelToolCall(call.id, call.name, written.text(), call.signature))

    def _encode_part(self, part: MessagePart) -> bytes:
        written = write_gemini_answer_part(part)
        if written is None:
            return b""
        if self._held_thoughts and not isinstance(part, ModelThinking) and "thoughtSignature" not in written:
            written["thoughtSignature"] = pack_thoughts_in_signature(self._held_thoughts)
            self._held_thoughts = []
        return self._encode_chunk(build_gemini_answer(self._id, self._model, [written]))

    def _encode_chunk(self, value: dict[str, Any]) -> bytes:
        return self._frame_chunk(encode_json(value))

    def _frame_chunk(self, piece: bytes) -> bytes:
        if not self._as_array:
            return b"data: %b\n\n" % piece
        head, self._is_first = (b"[" if self._is_first else b",\r\n"), False
        return head + piece
