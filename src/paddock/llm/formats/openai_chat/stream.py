"""Chat Completions as a stream."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from paddock.llm.formats.base import BrokenStream, StreamReader, StreamWriter
from paddock.llm.formats.fields import Fields, answer_fields
from paddock.llm.formats.openai_chat.answer import (
    FAILED,
    content_text,
    finish_of,
    finish_reason,
    usage_object,
    usage_of,
)
from paddock.llm.formats.openai_chat.read_request import arguments_text, read_signature
from paddock.llm.formats.openai_shared import error_object, failure_of, new_id
from paddock.llm.formats.sse import EventReader, event_bytes
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


class ChatReader(StreamReader):
    def __init__(self) -> None:
        self._events = EventReader()
        self._started = False
        self._done = False
        self._parts = 0
        self._open: tuple[int, type[Text | Thinking | Refusal]] | None = None
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._late: list[tuple[type[Text | Thinking | Refusal], str]] = []
        self._reason: str | None = None
        self._refused = False
        self._usage: Usage | None = None

    def feed(self, data: bytes) -> list[Event]:
        return [event for sent in self._events.feed(data) for event in self._take(sent.data)]

    def close(self) -> list[Event]:
        events = [event for sent in self._events.close() for event in self._take(sent.data)]
        if not self._done:
            if self._reason is None:
                raise BrokenStream("the stream ended before the answer did")
            events += self._finish()
        return events

    def _take(self, data: str) -> list[Event]:
        if self._done or not data.strip():
            return []
        if data.strip() == "[DONE]":
            if not self._started:
                raise BrokenStream("the stream is done without an answer")
            return self._finish()
        fields = answer_fields(data)
        if fields.get("error") or (fields.get("object") == "error"):
            failure = failure_of(fields.value) or Failure(502, "the provider failed without saying why")
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
        thought = delta.text_or("reasoning_content") or delta.text_or("reasoning")
        if thought:
            events += self._words(Thinking, thought)
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
            if self._late and self._late[-1][0] is kind:
                self._late[-1] = (kind, self._late[-1][1] + text)
            else:
                self._late.append((kind, text))
            return []
        events: list[Event] = []
        if self._open is None or self._open[1] is not kind:
            events += self._end_words()
            self._open = (self._parts, kind)
            events.append(PartStarted(self._next(), kind("")))
        events.append(Delta(self._open[0], text))
        return events

    def _end_words(self) -> list[Event]:
        if self._open is None:
            return []
        index = self._open[0]
        self._open = None
        return [PartEnded(index)]

    def _next(self) -> int:
        self._parts += 1
        return self._parts - 1

    def _call(self, delta: Fields) -> list[Event]:
        function = delta.object_or("function")
        name = (function.text_or("name") if function is not None else None) or ""
        call = self._find(delta, name)
        call.id = call.id or delta.text_or("id") or ""
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
            events.append(PartStarted(call.part, ToolCall(call.id, call.name, "")))
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
            for call in self._calls:
                if call_id and call.id == call_id:
                    return call
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
        for kind, text in self._late:
            index = self._next()
            events += [PartStarted(index, kind("")), Delta(index, text), PartEnded(index)]
        finish = finish_of(self._reason, calls=bool(self._calls), refusal=self._refused)
        return [*events, Finished(finish, self._usage)]


class ChatWriter(StreamWriter):
    def __init__(self, *, include_usage: bool) -> None:
        self._include_usage = include_usage
        self._id = ""
        self._model = ""
        self._created = int(time.time())
        self._kinds: dict[int, str] = {}
        self._calls: dict[int, int] = {}
        self._refused = False
        self._usage: Usage | None = None

    def write(self, event: Event) -> bytes:
        match event:
            case Started():
                self._id, self._model = event.id or new_id("chatcmpl-"), event.model
                self._usage = event.usage
                return self._chunk({"role": "assistant", "content": ""})
            case PartStarted():
                return self._start(event)
            case Delta():
                return self._more(event.index, event.text)
            case Signed() if event.index in self._calls:
                seal = {"google": {"thought_signature": event.signature}}
                return self._chunk({"tool_calls": [{"index": self._calls[event.index], "extra_content": seal}]})
            case Finished():
                return self._finish(event)
            case Failed():
                return event_bytes({"error": error_object(event.failure)})
            case _:
                return b""

    def _start(self, event: PartStarted) -> bytes:
        match event.part:
            case ToolCall(id=call_id, name=name, arguments=arguments):
                self._calls[event.index] = len(self._calls)
                call = {
                    "index": self._calls[event.index],
                    "id": call_id,
                    "type": "function",
                    "function": {"name": name, "arguments": arguments},
                }
                return self._chunk({"tool_calls": [call]})
            case Text(text=text):
                self._kinds[event.index] = "content"
            case Thinking(text=text):
                self._kinds[event.index] = "reasoning_content"
            case Refusal(text=text):
                self._kinds[event.index] = "refusal"
                self._refused = True
            case _:
                return b""
        return self._more(event.index, text)

    def _more(self, index: int, text: str) -> bytes:
        if not text:
            return b""
        if index in self._calls:
            return self._chunk({"tool_calls": [{"index": self._calls[index], "function": {"arguments": text}}]})
        kind = self._kinds.get(index)
        return self._chunk({kind: text}) if kind is not None else b""

    def _finish(self, event: Finished) -> bytes:
        written = self._chunk({}, finish_reason(event.finish, refusal=self._refused))
        usage = event.usage or self._usage
        if self._include_usage and usage is not None:
            written += event_bytes({**self._head(), "choices": [], "usage": usage_object(usage)})
        return written + event_bytes("[DONE]")

    def _head(self) -> dict[str, Any]:
        head = {"id": self._id, "object": "chat.completion.chunk", "created": self._created, "model": self._model}
        return {**head, "choices": []}

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return event_bytes({**self._head(), "choices": [choice]})
