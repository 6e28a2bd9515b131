"""Writing Gemini's streams: server-sent events with `alt=sse`, one JSON array without."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from paddock.llm.formats.base import StreamWriter
from paddock.llm.formats.fields import to_bytes
from paddock.llm.formats.gemini.answer import (
    answer_object,
    failure_object,
)
from paddock.llm.formats.gemini.envelope import enveloped
from paddock.llm.formats.gemini.parts import write_answer_part
from paddock.llm.formats.seals import GEMINI, foreign
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
    Usage,
)


@dataclass(slots=True)
class _Written:
    part: Part
    pieces: list[str] = field(default_factory=list)
    """Of a call, its arguments; of a thought, its text."""

    def text(self) -> str:
        self.pieces = ["".join(self.pieces)]
        return self.pieces[0]


_TEXT_HEAD = b'{"candidates":[{"content":{"parts":[{"text":'
_THOUGHT_HEAD = b'{"candidates":[{"content":{"parts":[{"thought":true,"text":'


class GeminiWriter(StreamWriter):
    """Calls are held back until they are whole: this format has no pieces of them."""

    def __init__(self, *, as_array: bool = False, names: dict[str, str] | None = None) -> None:
        self._as_array = as_array
        self._names = names or {}
        self._is_first = True
        self._id = ""
        self._model = ""
        self._tail = b""
        """How every piece of text ends."""
        self._parts: dict[int, _Written] = {}
        self._sealed: list[Thinking] = []
        """Other providers' thoughts that wait for the next part, on which they ride."""

    def ping(self) -> bytes:
        return b"\n" if self._as_array else super().ping()

    def write(self, event: Event) -> bytes:
        match event:
            case Delta():
                return self._more(event)
            case Started():
                self._id, self._model = event.id, event.model
                tail = to_bytes({"modelVersion": event.model, "responseId": event.id})[1:]
                self._tail = b'}],"role":"model"},"index":0}],' + tail
                return b""
            case PartStarted():
                return self._start(event)
            case Signed():
                return self._sign(event)
            case PartEnded():
                return self._end(event.index)
            case Finished():
                rest = b"".join(self._end(index) for index in list(self._parts))
                end: dict[str, Any] = {"text": ""}
                if self._sealed:
                    end["thoughtSignature"] = enveloped(self._sealed)
                last = answer_object(self._id, self._model, [end], event.finish, event.usage or Usage())
                return rest + self._piece(last) + (b"]" if self._as_array else b"")
            case Failed():
                return self._piece(failure_object(event.failure)) + (b"]" if self._as_array else b"")

    def _start(self, event: PartStarted) -> bytes:
        part = replace(event.part)
        if isinstance(part, ToolCall):
            part.name = self._names.get(part.name, part.name)
        self._parts[event.index] = _Written(part)
        if isinstance(part, ToolCall):
            self._parts[event.index].pieces.append(part.arguments)
            return b""
        if isinstance(part, Thinking):
            if part.redacted is not None:
                self._sealed.append(part)
                return b""
            self._parts[event.index].pieces.append(part.text)
        if isinstance(part, Text | Refusal) and not part.text:
            return b""
        said = self._say(Thinking(part.text) if isinstance(part, Thinking) else part)
        if isinstance(part, Thinking) and part.signature:
            said += self._sign(Signed(event.index, part.signature))
        return said

    def _more(self, event: Delta) -> bytes:
        written = self._parts.get(event.index)
        if written is None or not event.text:
            return b""
        if isinstance(written.part, ToolCall):
            written.pieces.append(event.text)
            return b""
        if isinstance(written.part, Thinking):
            written.pieces.append(event.text)
        elif self._sealed:
            return self._say(Text(event.text))
        head = _THOUGHT_HEAD if isinstance(written.part, Thinking) else _TEXT_HEAD
        return self._said(b"".join((head, to_bytes(event.text), self._tail)))

    def _sign(self, event: Signed) -> bytes:
        written = self._parts.get(event.index)
        if written is None:
            return b""
        if isinstance(written.part, ToolCall):
            written.part.signature = event.signature
            return b""
        if isinstance(written.part, Thinking) and foreign(event.signature, GEMINI):
            self._sealed.append(Thinking(written.text(), event.signature))
            return b""
        return self._say(Thinking(signature=event.signature))

    def _end(self, index: int) -> bytes:
        written = self._parts.pop(index, None)
        if written is None or not isinstance(written.part, ToolCall):
            return b""
        call = written.part
        return self._say(ToolCall(call.id, call.name, written.text(), call.signature))

    def _say(self, part: Part) -> bytes:
        written = write_answer_part(part)
        if written is None:
            return b""
        if self._sealed and not isinstance(part, Thinking) and "thoughtSignature" not in written:
            written["thoughtSignature"] = enveloped(self._sealed)
            self._sealed = []
        return self._piece(answer_object(self._id, self._model, [written]))

    def _piece(self, value: dict[str, Any]) -> bytes:
        return self._said(to_bytes(value))

    def _said(self, piece: bytes) -> bytes:
        if not self._as_array:
            return b"data: %b\n\n" % piece
        head, self._is_first = (b"[" if self._is_first else b",\r\n"), False
        return head + piece
