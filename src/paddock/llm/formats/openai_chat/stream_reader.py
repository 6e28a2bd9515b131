"""Reading a stream of Chat Completions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from paddock.llm.formats.base import BrokenStream
from paddock.llm.formats.failures import told_failure
from paddock.llm.formats.fields import Fields, answer_fields
from paddock.llm.formats.openai_chat.answer import (
    FAILED,
    content_text,
    finish_of,
    usage_of,
)
from paddock.llm.formats.openai_chat.read_request import read_signature
from paddock.llm.formats.openai_chat.reasoning import (
    Details,
    details_seal,
    details_text,
    read_details,
    read_text,
    redacted_thoughts,
)
from paddock.llm.formats.openai_shared import new_id
from paddock.llm.formats.sse import EventStreamReader
from paddock.llm.formats.turns import arguments_text
from paddock.llm.neutral import (
    Delta,
    Event,
    Failed,
    Failure,
    Finished,
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
class _Call:
    id: str = ""
    name: str = ""
    part: int | None = None
    waiting: list[str] = field(default_factory=list)
    """Arguments that came before the name."""
    empty: bool = True
    signature: str | None = None


class _QuickFunction(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _QuickCall(msgspec.Struct):
    function: _QuickFunction
    index: int | None = None
    id: str | None = None
    extra_content: Any = None


class _QuickDelta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_QuickCall] | None = None
    refusal: Any = None
    reasoning: str | None = None
    reasoning_details: Any = None


class _QuickChoice(msgspec.Struct):
    delta: _QuickDelta
    index: int = 0
    finish_reason: str | None = None


class _QuickChunk(msgspec.Struct):
    choices: list[_QuickChoice]
    error: Any = None
    usage: Any = None


_decode = msgspec.json.Decoder(_QuickChunk).decode


class ChatReader(EventStreamReader):
    def __init__(self) -> None:
        super().__init__()
        self._started = False
        self._done = False
        self._parts = 0
        self._open: tuple[int, type[Text | Thinking | Refusal]] | None = None
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._late: list[tuple[type[Text | Thinking | Refusal], list[str]]] = []
        self._details = Details()
        """Of the thought being told."""
        self._thinks_aloud = False
        self._reason: str | None = None
        self._refused = False
        self._usage: Usage | None = None

    def _quick(self, piece: bytes) -> Delta | None:
        """More of what is being told and nothing else, which is what most of a stream says; `None` for all else."""
        if self._done or (self._open is None and not self._calls):
            return None
        try:
            found = _decode(piece)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        if len(found.choices) != 1 or found.error or found.usage:
            return None
        choice = found.choices[0]
        delta = choice.delta
        if choice.finish_reason or choice.index or delta.refusal or delta.reasoning_details:
            return None
        thought = delta.reasoning_content or delta.reasoning
        if delta.tool_calls:
            return self._quick_call(delta.tool_calls) if not (delta.content or thought) else None
        if self._open is None or self._calls:
            return None
        index, kind = self._open
        if kind is Text and delta.content and not thought:
            return Delta(index, delta.content)
        if kind is Thinking and thought and not delta.content:
            return Delta(index, thought)
        return None

    def _quick_call(self, pieces: list[_QuickCall]) -> Delta | None:
        """More arguments of a call that has been told of."""
        piece = pieces[0]
        if len(pieces) != 1 or piece.id or piece.index is None or piece.extra_content:
            return None
        call = self._by_index.get(piece.index)
        if call is None or call.part is None or piece.function.name or not piece.function.arguments:
            return None
        call.empty = False
        return Delta(call.part, piece.function.arguments)

    def close(self) -> list[Event]:
        events = [event for sent in self._events.close() for event in self._read(sent.data)]
        if not self._done:
            if self._reason is None:
                raise BrokenStream("the stream ended before the answer did")
            events += self._finish()
        return events

    def _read(self, data: str | bytes, name: str = "") -> list[Event]:
        data = data.strip()
        if self._done or not data:
            return []
        if data in ("[DONE]", b"[DONE]"):
            if not self._started:
                raise BrokenStream("the stream is done without an answer")
            return self._finish()
        fields = answer_fields(data)
        if fields.get("error") or (fields.get("object") == "error"):
            failure = told_failure(fields.value) or Failure(502, "the provider failed without saying why")
            return self._fail(failure)
        events: list[Event] = []
        if not self._started:
            self._started = True
            events.append(Started(fields.text_or("id") or new_id("chatcmpl-"), fields.text_or("model") or ""))
        self._usage = usage_of(fields) or self._usage
        for choice in fields.objects("choices"):
            if choice.get("index") not in (None, 0):
                continue
            delta = choice.object_or("delta") or choice.object_or("message")
            if delta is not None:
                events += self._delta(delta)
            reason = choice.text_or("finish_reason")
            if reason in FAILED:
                return events + self._fail(Failure(503, f"the provider ended the answer with {reason}"))
            self._reason = self._reason or reason or None
        return events

    def _fail(self, failure: Failure) -> list[Event]:
        self._done = True
        return [Failed(failure)]

    def _delta(self, delta: Fields) -> list[Event]:
        events: list[Event] = []
        details = read_details(delta)
        thought = read_text(delta)
        self._thinks_aloud = self._thinks_aloud or bool(thought)
        if not self._thinks_aloud:
            # Servers that tell the text in both places tell it twice.
            thought = details_text(details)
        if thought:
            events += self._words(Thinking, thought)
        sealed, details = redacted_thoughts(details)
        for each in sealed if not self._calls else ():
            events += [*self._end_words(), PartStarted(self._parts, each), PartEnded(self._next())]
        if details:
            if details_seal(details) and not self._calls and (self._open is None or self._open[1] is not Thinking):
                events += self._begin(Thinking)
            self._details.add(details)
        text = content_text(delta)
        if text:
            events += self._words(Text, text)
        refusal = delta.text_or("refusal")
        if refusal:
            self._refused = True
            events += self._words(Refusal, refusal)
        for call in delta.objects("tool_calls"):
            events += self._call(call)
        return events

    def _words(self, kind: type[Text | Thinking | Refusal], text: str) -> list[Event]:
        if self._calls:
            # Calls may still grow, and a text must not stand among their pieces: it waits for their end.
            if not self._late or self._late[-1][0] is not kind:
                self._late.append((kind, []))
            self._late[-1][1].append(text)
            return []
        events: list[Event] = []
        if self._open is None or self._open[1] is not kind:
            events += self._begin(kind)
        assert self._open is not None
        events.append(Delta(self._open[0], text))
        return events

    def _begin(self, kind: type[Text | Thinking | Refusal]) -> list[Event]:
        events = self._end_words()
        self._open = (self._parts, kind)
        return [*events, PartStarted(self._next(), kind(""))]

    def _end_words(self) -> list[Event]:
        if self._open is None:
            return []
        index, kind = self._open
        self._open = None
        seal = None
        if kind is Thinking:
            seal = details_seal(self._details.whole())
            self._details = Details()
        return [Signed(index, seal), PartEnded(index)] if seal is not None else [PartEnded(index)]

    def _next(self) -> int:
        self._parts += 1
        return self._parts - 1

    def _call(self, delta: Fields) -> list[Event]:
        function = delta.object_or("function")
        name = (function.text_or("name") if function is not None else None) or ""
        call = self._find(delta, name)
        call.id = call.id or delta.text_or("id") or ""
        self._by_id.setdefault(call.id, call)
        call.name = call.name or name
        call.signature = read_signature(delta) or call.signature
        arguments = arguments_text(function.get("arguments")) if function is not None else ""
        events: list[Event] = []
        if call.part is None:
            call.waiting.append(arguments)
            if not call.name:
                return []
            events += self._end_words()
            call.id = call.id or new_id("call_")
            call.part = self._next()
            events.append(PartStarted(call.part, ToolCall(call.id, call.name, "", call.signature)))
            call.signature = None
            arguments = "".join(call.waiting)
        if arguments:
            call.empty = False
            events.append(Delta(call.part, arguments))
        return events

    def _find(self, delta: Fields, name: str) -> _Call:
        """The call a piece belongs to. Some servers give no index, some the same to all, some no id after the first."""
        call_id, index = delta.text_or("id") or "", delta.integer_or("index")
        if index is not None:
            known = self._by_index.get(index)
            if known is not None and not (call_id and name and known.id and call_id != known.id):
                return known
        else:
            if call_id and call_id in self._by_id:
                return self._by_id[call_id]
            if self._calls and not call_id and not name:
                return self._calls[-1]
        call = _Call()
        self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        return call

    def _finish(self) -> list[Event]:
        self._done = True
        events = self._end_words()
        for call in self._calls:
            if call.part is None:
                raise BrokenStream("a call in the stream has no name")
            if call.empty:
                events.append(Delta(call.part, "{}"))
            if call.signature is not None:
                events.append(Signed(call.part, call.signature))
            events.append(PartEnded(call.part))
        for kind, texts in self._late:
            index = self._next()
            events += [PartStarted(index, kind("")), Delta(index, "".join(texts)), PartEnded(index)]
        finish = finish_of(self._reason, calls=bool(self._calls), refusal=self._refused)
        return [*events, Finished(finish, self._usage)]
