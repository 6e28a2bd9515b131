"""Reading a stream of the Responses API."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from paddock.llm.formats.base import BrokenStream
from paddock.llm.formats.failures import told_failure
from paddock.llm.formats.fields import Fields, answer_fields
from paddock.llm.formats.openai_responses.answer import finish_of, read_content, usage_of
from paddock.llm.formats.openai_responses.read_request import read_call, read_thought
from paddock.llm.formats.openai_shared import new_id
from paddock.llm.formats.sse import EventStreamReader
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
)

_Words = Text | Thinking | Refusal
_PREFIX = "response."


@dataclass(slots=True)
class _Call:
    part: int
    custom: bool
    arguments: list[str] = field(default_factory=list)
    ended: bool = False


class _Quick(msgspec.Struct):
    type: str
    delta: str
    output_index: int
    content_index: int = 0


_decode = msgspec.json.Decoder(_Quick).decode


class ResponsesReader(EventStreamReader):
    """Lenient about servers that leave out events: what only comes with an item's end is told then."""

    def __init__(self) -> None:
        super().__init__()
        self._started = False
        self._done = False
        self._parts = 0
        self._open: tuple[str, int] | None = None
        """The text or thought being told: where it stands in the stream, and its part."""
        self._told: set[str] = set()
        self._calls: dict[str, _Call] = {}
        self._going: dict[str, None] = {}
        """The calls that have not ended, in their order."""
        self._gap: set[str] = set()
        """Thoughts whose next words are a new paragraph."""
        self._source: dict[str, str] = {}
        self._refused = False

    def _quick(self, piece: bytes) -> Delta | None:
        """More of the text or the arguments being told, which is what most of a stream says; `None` for all else."""
        if self._done or b'.delta"' not in piece[:80]:
            return None
        try:
            found = _decode(piece)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        if not found.delta:
            return None
        if found.type == "response.output_text.delta":
            if self._open is not None and self._open[0] == f"{found.output_index}/{found.content_index}":
                return Delta(self._open[1], found.delta)
        elif found.type == "response.function_call_arguments.delta":
            call = self._calls.get(str(found.output_index))
            if call is not None and not call.ended:
                call.arguments.append(found.delta)
                return Delta(call.part, found.delta)
        return None

    def close(self) -> list[Event]:
        events = [event for sent in self._events.close() for event in self._read(sent.data, sent.name)]
        if not self._done:
            raise BrokenStream("the stream ended before the answer did")
        return events

    def _read(self, data: str | bytes, name: str = "") -> list[Event]:
        data = data.strip()
        if self._done or not data or data in ("[DONE]", b"[DONE]"):
            return []
        fields = answer_fields(data)
        kind = fields.text_or("type") or name
        if kind == "error" or (not kind.startswith(_PREFIX) and fields.get("error")):
            return self._fail(fields)
        if not kind.startswith(_PREFIX):
            return []
        kind = kind.removeprefix(_PREFIX)
        if kind in ("failed", "cancelled"):
            return self._fail(fields.object_or("response") or fields)
        events: list[Event] = []
        response = fields.object_or("response")
        if not self._started:
            self._started = True
            head = response.value if response is not None else {}
            events.append(Started(str(head.get("id") or new_id("resp_")), str(head.get("model") or "")))
        if kind in ("completed", "incomplete", "done"):
            return events + self._finish(response or fields.object("response"))
        return events + self._event(kind, fields)

    def _fail(self, fields: Fields) -> list[Event]:
        self._done = True
        told = fields.value if fields.get("error") or fields.get("message") else {}
        return [Failed(told_failure(told) or Failure(502, "the provider failed without saying why"))]

    def _event(self, kind: str, fields: Fields) -> list[Event]:
        key = _key(fields)
        match kind:
            case "output_item.added":
                item = fields.object("item")
                is_call = item.get("type") in ("function_call", "custom_tool_call")
                return self._start_call(key, item) if is_call else []
            case "output_item.done":
                return self._item_done(key, fields.object("item"))
            case "output_text.delta":
                return self._say(_place(key, fields), Text, fields.text("delta"))
            case "refusal.delta":
                return self._say(_place(key, fields), Refusal, fields.text("delta"))
            case "output_text.done":
                return self._said(_place(key, fields), Text, fields.text_or("text") or "")
            case "refusal.done":
                return self._said(_place(key, fields), Refusal, fields.text_or("refusal") or "")
            case "reasoning_summary_part.added":
                if key in self._told:
                    self._gap.add(key)
                return []
            case "reasoning_summary_text.delta" | "reasoning_text.delta":
                return self._think(key, kind, fields.text("delta"))
            case "function_call_arguments.delta":
                return self._argue(key, fields.text("delta"))
            case "function_call_arguments.done":
                return self._argued(key, fields.text_or("arguments") or "")
            case _:
                return []

    def _next(self) -> int:
        self._parts += 1
        return self._parts - 1

    def _say(self, place: str, kind: type[_Words], text: str) -> list[Event]:
        if not text:
            return []
        events: list[Event] = []
        if self._open is None or self._open[0] != place:
            events += self._end_all()
            self._open = (place, self._next())
            events.append(PartStarted(self._open[1], kind("")))
            self._refused = self._refused or kind is Refusal
        self._told.add(place)
        return [*events, Delta(self._open[1], text)]

    def _said(self, place: str, kind: type[_Words], text: str) -> list[Event]:
        events = self._say(place, kind, text) if place not in self._told else []
        if self._open is not None and self._open[0] == place:
            events += self._end_words()
        return events

    def _think(self, key: str, source: str, text: str) -> list[Event]:
        # A model may send its thoughts and a summary of them; one of the two is enough.
        if not text or self._source.setdefault(key, source) != source:
            return []
        if key in self._gap:
            self._gap.discard(key)
            text = f"\n\n{text}"
        return self._say(key, Thinking, text)

    def _end_words(self) -> list[Event]:
        if self._open is None:
            return []
        part = self._open[1]
        self._open = None
        return [PartEnded(part)]

    def _end_all(self) -> list[Event]:
        events = self._end_words()
        for key in [*self._going]:
            events += self._end_call(key)
        return events

    def _start_call(self, key: str, item: Fields) -> list[Event]:
        if key in self._calls:
            return []
        events = self._end_words()
        call = read_call(item)
        self._calls[key] = _Call(self._next(), item.get("type") == "custom_tool_call")
        self._going[key] = None
        return [*events, PartStarted(self._calls[key].part, ToolCall(call.id, call.name, ""))]

    def _argue(self, key: str, text: str) -> list[Event]:
        call = self._calls.get(key)
        if call is None or call.ended:
            raise BrokenStream("the stream has arguments of a call that is not open")
        if not text:
            return []
        call.arguments.append(text)
        return [Delta(call.part, text)]

    def _argued(self, key: str, arguments: str) -> list[Event]:
        """Tell what the whole arguments have beyond those told already."""
        call = self._calls.get(key)
        if call is None or call.ended:
            return []
        told = "".join(call.arguments)
        call.arguments = [told] if told else []
        if not arguments.startswith(told):
            return []
        return self._argue(key, arguments[len(told) :])

    def _end_call(self, key: str) -> list[Event]:
        call = self._calls[key]
        if call.ended:
            return []
        events = self._argue(key, "{}") if not call.arguments else []
        call.ended = True
        del self._going[key]
        return [*events, PartEnded(call.part)]

    def _item_done(self, key: str, item: Fields) -> list[Event]:
        match item.get("type"):
            case "message":
                events: list[Event] = []
                for index, piece in enumerate(item.objects("content")):
                    part = read_content(piece)
                    if part is not None:
                        events += self._said(f"{key}/{index}", type(part), part.text)
                return events
            case "reasoning":
                return self._thought_done(key, item)
            case "function_call" | "custom_tool_call":
                events = self._start_call(key, item)
                return events + self._argued(key, read_call(item).arguments) + self._end_call(key)
            case _:
                return []

    def _thought_done(self, key: str, item: Fields) -> list[Event]:
        thought = read_thought(item)
        if thought is None:
            return self._said(key, Thinking, "")
        events: list[Event] = []
        if key not in self._told:
            events += self._end_all()
            self._told.add(key)
            self._open = (key, self._next())
            events.append(PartStarted(self._open[1], Thinking(redacted=thought.redacted)))
            if thought.text:
                events.append(Delta(self._open[1], thought.text))
        if self._open is not None and self._open[0] == key:
            if thought.signature is not None:
                events.append(Signed(self._open[1], thought.signature))
            events += self._end_words()
        return events

    def _finish(self, response: Fields) -> list[Event]:
        self._done = True
        events: list[Event] = []
        if not self._parts:
            for index, item in enumerate(response.objects("output")):
                events += self._item_done(str(index), item)
        events += self._end_all()
        finish = finish_of(response, calls=bool(self._calls), refusal=self._refused)
        return [*events, Finished(finish, usage_of(response))]


def _key(fields: Fields) -> str:
    """The item an event is about."""
    index = fields.get("output_index")
    return str(index if index is not None else fields.get("item_id"))


def _place(key: str, fields: Fields) -> str:
    return f"{key}/{fields.get('content_index') or 0}"
